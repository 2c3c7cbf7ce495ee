use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_domain::MessageId;
use tidegate_testkit::journal::{ClientJournal, Outcome};
use tidegate_testkit::load::{Answer, Source, write_request};

use super::chance::Chance;

const CONNECTIONS: usize = 32;
const USERS_PER_CONNECTION: usize = 4;
/// More than any run sends.
const LIMIT_NEVER_REACHED: u32 = 1_000_000_000;

/// One connection's users. Each sends one message after the other, so that their order is known.
#[derive(Debug)]
pub struct Client {
    users: Vec<User>,
    turn: usize,
    /// Send again what has no answer, and nothing new.
    pub only_unanswered: bool,
    pub journal: ClientJournal,
    /// Status and body of each answer that a sound gateway does not give.
    pub strange: Vec<(u16, String)>,
}

#[derive(Debug)]
struct User {
    name: Arc<str>,
    limit: u32,
    sent: u64,
    /// The latest message has no answer yet: it goes again before the next one.
    unanswered: bool,
    /// Refused in this life. Tried again in the next, where the count must still stand.
    exhausted: bool,
}

/// Every fifth user has a small limit, reached in an early life or a late one.
pub fn clients(chance: &mut Chance) -> Vec<Client> {
    let client = |connection: usize, chance: &mut Chance| {
        let user = |place: usize| {
            let number = connection * USERS_PER_CONNECTION + place;
            let small = u32::try_from(chance.between(1, 600)).unwrap_or(1);
            let limit = if number.is_multiple_of(5) { small } else { LIMIT_NEVER_REACHED };
            User { name: format!("u{number}").into(), limit, sent: 0, unanswered: false, exhausted: false }
        };
        let users = (0..USERS_PER_CONNECTION).map(user).collect();
        let journal = ClientJournal::default();
        Client { users, turn: 0, only_unanswered: false, journal, strange: Vec::new() }
    };
    (0..CONNECTIONS).map(|connection| client(connection, chance)).collect()
}

impl Client {
    pub fn limits(&self) -> BTreeMap<String, u32> {
        self.users.iter().map(|user| (user.name.to_string(), user.limit)).collect()
    }

    pub fn unanswered(&self) -> usize {
        self.users.iter().filter(|user| user.unanswered).count()
    }

    pub fn begin_life(&mut self) {
        for user in &mut self.users {
            user.exhausted = false;
        }
    }

    fn next_user(&mut self) -> Option<usize> {
        let wanted = |user: &User| user.unanswered || !(self.only_unanswered || user.exhausted);
        let count = self.users.len();
        (1..=count).map(|step| (self.turn + step) % count).find(|place| wanted(&self.users[*place]))
    }
}

impl User {
    fn message(&self) -> String {
        format!("{}#{}", self.name, self.sent)
    }
}

impl Source for Client {
    fn next(&mut self, request: &mut Vec<u8>) -> bool {
        let Some(place) = self.next_user() else { return false };
        self.turn = place;
        let user = &mut self.users[place];
        if !user.unanswered {
            user.sent += 1;
            user.unanswered = true;
        }
        let message = user.message();
        let json = format!(r#"{{"userId":"{}","message":"{message}"}}"#, user.name);
        write_request(request, "POST", "/api/send", &[("Idempotency-Key", &message)], json.as_bytes());
        true
    }

    fn answered(&mut self, answer: Answer<'_>) {
        let user = &mut self.users[self.turn];
        let outcome = match answer {
            Answer::Response { status: 200, body } => match id_in(body) {
                Some(id) => Outcome::Ok(id),
                None => {
                    self.strange.push((200, String::from_utf8_lossy(body).into_owned()));
                    Outcome::Unknown
                }
            },
            Answer::Response { status: 429, .. } => {
                user.exhausted = true;
                Outcome::Refused(429)
            }
            // Overloaded, read-only or dying: the next life will tell.
            Answer::Response { status: 500.., .. } | Answer::Unknown => Outcome::Unknown,
            Answer::Response { status, body } => {
                self.strange.push((status, String::from_utf8_lossy(body).into_owned()));
                Outcome::Refused(status)
            }
        };
        user.unanswered = outcome == Outcome::Unknown;
        self.journal.note(user.name.clone(), user.message(), outcome);
    }
}

fn id_in(body: &[u8]) -> Option<MessageId> {
    let answer: serde_json::Value = serde_json::from_slice(body).ok()?;
    answer.get("id")?.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: Answer<'_> =
        Answer::Response { status: 200, body: br#"{"id":"01981c5e-8a00-7000-8000-00000040d2f1"}"# };

    fn next(client: &mut Client) -> String {
        let mut request = Vec::new();
        assert!(client.next(&mut request));
        let text = String::from_utf8(request).unwrap();
        text.split_once("\"message\":\"").unwrap().1.trim_end_matches("\"}").to_owned()
    }

    #[test]
    fn an_unanswered_message_goes_again_before_the_next_one() {
        let mut client = clients(&mut Chance::new(1)).remove(0);
        let first: Vec<_> = (0..4)
            .map(|_| {
                let message = next(&mut client);
                client.answered(Answer::Unknown);
                message
            })
            .collect();
        assert_eq!(client.unanswered(), 4);
        let again: Vec<_> = (0..4)
            .map(|_| {
                let message = next(&mut client);
                client.answered(OK);
                message
            })
            .collect();
        assert_eq!((first, client.unanswered()), (again, 0));
        assert!(next(&mut client).ends_with("#2"));
    }

    #[test]
    fn a_refused_user_rests_until_the_next_life() {
        let mut client = clients(&mut Chance::new(1)).remove(0);
        for _ in 0..4 {
            next(&mut client);
            client.answered(Answer::Response { status: 429, body: b"" });
        }
        assert!(!client.next(&mut Vec::new()));
        client.begin_life();
        assert!(client.next(&mut Vec::new()));
    }
}

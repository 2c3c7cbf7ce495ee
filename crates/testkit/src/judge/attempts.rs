use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use tidegate_domain::{MessageId, Status};

use crate::journal::{ClientJournal, Outcome, Tried, TriedJournal, WebAnswer};

/// What holds for every attempt of a run.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    pub attempts_max: u32,
    /// Attempts that one process has under way, or has not written down yet, at the most.
    pub in_flight_max: usize,
}

/// How many attempts or messages went wrong in which way, with an example of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttemptVerdict {
    pub attempts: usize,
    pub endings: BTreeMap<&'static str, usize>,
    pub answers: BTreeMap<WebAnswer, usize>,
    /// The same attempt again in a later life: allowed for those in flight at a kill.
    pub repeated: usize,
    /// More of them than could be in flight, or within one life.
    pub repeated_too_often: usize,
    /// Of a message that nobody asked for, or under another id than was acknowledged.
    pub phantom: usize,
    /// Of a recipient's earlier message, or an earlier attempt, after a later one.
    pub inverted: usize,
    /// Acknowledged, and not known any more, or still pending when all is over.
    pub lost: usize,
    /// Delivered without the last attempt's yes.
    pub unearned: usize,
    /// Attempts beyond the budget.
    pub over_budget: usize,
    /// Dead before the budget was spent, though never refused, or with a yes as the last word.
    pub given_up_early: usize,
    pub examples: BTreeMap<&'static str, String>,
}

/// What there is to know about one message.
struct Message<'a> {
    recipient: &'a str,
    /// Its place among the recipient's, as they were sent.
    place: usize,
    ids: BTreeSet<MessageId>,
    numbers: BTreeSet<u32>,
    last: Option<&'a Tried>,
}

/// Judges what the provider saw against what the client was promised. `endings` is what the gateway says has become of
/// each message once everything is over.
pub fn judge_attempts(
    client: &ClientJournal,
    provider: &TriedJournal,
    endings: &HashMap<MessageId, Status>,
    budget: Budget,
) -> AttemptVerdict {
    let mut verdict = AttemptVerdict { phantom: provider.nonsense, ..AttemptVerdict::default() };
    let mut messages = asked(client);
    let mut latest: HashMap<&str, (usize, u32, u32)> = HashMap::new();
    let mut repeats: BTreeMap<u32, usize> = BTreeMap::new();
    for tried in provider.in_order() {
        verdict.attempts += 1;
        *verdict.answers.entry(tried.answer).or_default() += 1;
        let Some(message) = messages.get_mut(&tried.message) else {
            verdict.phantom += 1;
            verdict.example("phantom", tried);
            continue;
        };
        if !message.ids.contains(&tried.id) {
            verdict.phantom += 1;
            verdict.example("phantom id", tried);
        }
        let now = (message.place, tried.number, tried.life);
        if let Some(before) = latest.insert(message.recipient, now) {
            if (before.0, before.1) > (now.0, now.1) {
                verdict.inverted += 1;
                verdict.example("inverted", tried);
            } else if (before.0, before.1) == (now.0, now.1) {
                verdict.repeated += 1;
                if before.2 == tried.life {
                    verdict.repeated_too_often += 1;
                    verdict.example("repeated within a life", tried);
                }
                *repeats.entry(before.2).or_default() += 1;
            }
        }
        message.numbers.insert(tried.number);
        message.last = Some(tried);
    }
    for (life, count) in repeats {
        if count > budget.in_flight_max {
            verdict.repeated_too_often += count - budget.in_flight_max;
            verdict.example("repeated", &format!("{count} of life {life}"));
        }
    }
    for (text, message) in &messages {
        verdict.weigh(text, message, endings, budget);
    }
    verdict
}

fn asked(client: &ClientJournal) -> HashMap<Arc<str>, Message<'_>> {
    let (mut messages, mut places) = (HashMap::new(), HashMap::<&str, usize>::new());
    for entry in &client.tries {
        let message = messages.entry(entry.message.clone()).or_insert_with(|| {
            let place = places.entry(&entry.user).or_default();
            *place += 1;
            let (ids, numbers) = (BTreeSet::new(), BTreeSet::new());
            Message { recipient: &entry.user, place: *place, ids, numbers, last: None }
        });
        if let Outcome::Ok(id) = entry.outcome {
            message.ids.insert(id);
        }
    }
    messages
}

impl AttemptVerdict {
    pub fn is_clean(&self) -> bool {
        let faults = [self.phantom, self.inverted, self.lost, self.unearned, self.over_budget];
        faults.iter().sum::<usize>() + self.given_up_early + self.repeated_too_often == 0
    }

    fn weigh(
        &mut self,
        text: &str,
        message: &Message<'_>,
        endings: &HashMap<MessageId, Status>,
        budget: Budget,
    ) {
        let spent = message.numbers.last().copied().unwrap_or(0);
        if spent > budget.attempts_max {
            self.over_budget += 1;
            self.example("over budget", &format!("{text}: {spent} attempts"));
        }
        let last = message.last.map(|tried| tried.answer);
        for id in &message.ids {
            let Some(ending) = endings.get(id).filter(|status| **status != Status::Pending) else {
                self.lost += 1;
                self.example("lost", text);
                continue;
            };
            *self.endings.entry(word(*ending)).or_default() += 1;
            let exhausted = message.numbers.iter().copied().eq(1..=budget.attempts_max);
            match ending {
                Status::Delivered if !last.is_some_and(WebAnswer::says_yes) => {
                    self.unearned += 1;
                    self.example("unearned", &format!("{text}: the last answer was {last:?}"));
                }
                Status::Dead if last != Some(WebAnswer::Refuse) && (!exhausted || yes(last)) => {
                    self.given_up_early += 1;
                    let numbers = &message.numbers;
                    self.example("given up early", &format!("{text}: attempts {numbers:?}, last {last:?}"));
                }
                _ => (),
            }
        }
    }

    fn example(&mut self, kind: &'static str, what: &(impl fmt::Debug + ?Sized)) {
        self.examples.entry(kind).or_insert_with(|| format!("{what:?}"));
    }
}

fn yes(last: Option<WebAnswer>) -> bool {
    last.is_some_and(WebAnswer::says_yes)
}

fn word(status: Status) -> &'static str {
    match status {
        Status::Pending => "pending",
        Status::Delivered => "delivered",
        Status::Dead => "dead",
        Status::Expired => "expired",
        Status::Deleted => "deleted",
    }
}

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdkafka::error::RDKafkaErrorCode as Code;
use tidegate_domain::{BusError, BusHealth};

/// How Kafka is doing, as far as we know: what the watch found out, and what the clients heard since.
#[derive(Debug)]
pub struct Standing(Mutex<Known>);

#[derive(Debug)]
struct Known {
    /// Why there is no cluster to talk to.
    unreached: Option<BusError>,
    /// What is wrong with which topic.
    topics: BTreeMap<String, BusError>,
    /// What a client said last of a connection that failed, as a reason for what follows from it.
    heard: Option<BusError>,
    user: Option<String>,
}

impl Standing {
    pub fn new(user: Option<String>) -> Self {
        let unreached = Some(BusError::Away("not connected yet".to_owned()));
        Self(Mutex::new(Known { unreached, topics: BTreeMap::new(), heard: None, user }))
    }

    pub fn health(&self) -> BusHealth {
        let known = self.known();
        match known.unreached.as_ref().or_else(|| known.topics.values().next()) {
            None => BusHealth::Ready,
            Some(BusError::Away(why) | BusError::Refused(why)) => BusHealth::Away(why.clone()),
        }
    }

    /// What keeps from using these topics.
    pub fn trouble(&self, topics: &[String]) -> Option<BusError> {
        let known = self.known();
        let of_topic = || topics.iter().find_map(|topic| known.topics.get(topic));
        known.unreached.as_ref().or_else(of_topic).cloned()
    }

    /// A client tells of an error. A refused login is one at once; a broken connection becomes one when nobody answers.
    pub fn hear(&self, code: Option<Code>, reason: &str) {
        let mut known = self.known();
        match code {
            // Says nothing that the errors before it did not say better.
            Some(Code::AllBrokersDown) => {}
            Some(
                Code::Authentication
                | Code::SaslAuthenticationFailed
                | Code::UnsupportedSASLMechanism
                | Code::IllegalSASLState,
            ) => {
                let login = match &known.user {
                    Some(user) => format!("the login of {user:?} is refused"),
                    None => "a login is wanted".to_owned(),
                };
                let refused = BusError::Refused(format!("{login}: {reason}"));
                (known.heard, known.unreached) = (Some(refused.clone()), Some(refused));
            }
            _ => known.heard = Some(BusError::Away(reason.to_owned())),
        }
    }

    pub fn reached(&self) {
        let mut known = self.known();
        (known.unreached, known.heard) = (None, None);
    }

    /// Nobody has answered. A client may know better why.
    pub fn unreached(&self, error: &str) {
        let mut known = self.known();
        known.unreached = Some(known.heard.clone().unwrap_or_else(|| BusError::Away(error.to_owned())));
    }

    pub fn set_topic(&self, topic: &str, trouble: Option<BusError>) {
        let mut known = self.known();
        match trouble {
            Some(trouble) => _ = known.topics.insert(topic.to_owned(), trouble),
            None => _ = known.topics.remove(topic),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdkafka::error::RDKafkaErrorCode as Code;
use tidegate_domain::{BusError, BusHealth};

use crate::reason::{Encryption, lasting};

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
    was_reached: bool,
    user: Option<String>,
    encryption: Encryption,
}

impl Standing {
    pub fn new(user: Option<String>, encryption: Encryption) -> Self {
        let unreached = Some(BusError::Away("not connected yet".to_owned()));
        let topics = BTreeMap::new();
        Self(Mutex::new(Known { unreached, topics, heard: None, was_reached: false, user, encryption }))
    }

    pub fn health(&self) -> BusHealth {
        let known = self.known();
        match known.unreached.as_ref().or_else(|| known.topics.values().next()) {
            None => BusHealth::Ready,
            Some(BusError::Away(why) | BusError::Refused(why)) => BusHealth::Away(why.clone()),
        }
    }

    /// What keeps from publishing to a topic.
    pub fn trouble(&self, topic: &str) -> Option<BusError> {
        let known = self.known();
        known.unreached.as_ref().or_else(|| known.topics.get(topic)).cloned()
    }

    /// What keeps from receiving from these topics. A partition without a leader keeps nobody from the others.
    pub fn silence(&self, topics: &[String]) -> Option<BusError> {
        let known = self.known();
        let refused = |topic| known.topics.get(topic).filter(|why| matches!(why, BusError::Refused(_)));
        known.unreached.as_ref().or_else(|| topics.iter().find_map(refused)).cloned()
    }

    /// A client tells of an error. A refused login is one at once; a broken connection becomes one when nobody answers.
    pub fn hear(&self, code: Option<Code>, reason: &str) {
        let (mut known, reason) = (self.known(), lasting(reason));
        match code {
            // The one says nothing that the errors before it did not say better, the other is none.
            Some(Code::AllBrokersDown | Code::PartitionEOF) => {}
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
            _ => {
                let text = if let Some(explained) = known.encryption.explain(reason) {
                    explained
                } else if reason.contains("Connect to") {
                    reason.to_owned()
                } else {
                    known.guess(reason)
                };
                known.heard = Some(BusError::Away(text));
            }
        }
    }

    pub fn reached(&self) {
        let mut known = self.known();
        (known.unreached, known.heard, known.was_reached) = (None, None, true);
    }

    /// Nobody has answered. A client may know better why.
    pub fn unreached(&self, error: &str) {
        let mut known = self.known();
        known.unreached = Some(known.heard.clone().unwrap_or_else(|| BusError::Away(known.guess(error))));
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

impl Known {
    /// A Kafka that wants another login than ours closes the connection, and does not say why.
    fn guess(&self, reason: &str) -> String {
        if self.was_reached { reason.to_owned() } else { format!("{reason}; {}", self.encryption.guess()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(standing: &Standing) -> String {
        match standing.health() {
            BusHealth::Ready => String::new(),
            BusHealth::Away(why) => why,
        }
    }

    #[test]
    fn the_reason_is_what_was_heard_last() {
        let standing = Standing::new(Some("alice".to_owned()), Encryption::Off);
        standing.hear(Some(Code::Authentication), "wrong password");
        assert_eq!(health(&standing), "the login of \"alice\" is refused: wrong password");
        standing.reached();
        assert_eq!(health(&standing), "");
        standing.hear(Some(Code::BrokerTransportFailure), "broken pipe");
        standing.hear(Some(Code::AllBrokersDown), "1/1 brokers are down");
        assert_eq!(health(&standing), "", "somebody may still answer");
        standing.unreached("no answer in time");
        assert_eq!(health(&standing), "broken pipe");
        standing.reached();
        standing.unreached("no answer in time");
        assert_eq!(health(&standing), "no answer in time");
    }

    #[test]
    fn a_connection_that_is_closed_at_once_may_want_a_login() {
        let standing = Standing::new(None, Encryption::Off);
        standing.unreached("no answer in time");
        assert!(health(&standing).contains("login"));
        standing.hear(None, "localhost:9092: Connect to ipv4#127.0.0.1:9092 failed: Connection refused");
        standing.unreached("no answer in time");
        assert!(!health(&standing).contains("login"));
        standing.hear(None, "localhost:9092: Send failed: Broken pipe (after 0ms in state UP)");
        standing.unreached("no answer in time");
        assert!(health(&standing).contains("login"));
    }

    #[test]
    fn trouble_of_a_topic_is_the_business_of_those_who_use_it() {
        let standing = Standing::new(None, Encryption::Off);
        standing.reached();
        let trouble = BusError::Refused("the topic a is missing".to_owned());
        standing.set_topic("a", Some(trouble.clone()));
        assert_eq!(health(&standing), "the topic a is missing");
        assert_eq!((standing.trouble("b"), standing.trouble("a")), (None, Some(trouble.clone())));
        let both = ["b".to_owned(), "a".to_owned()];
        assert_eq!(standing.silence(&both), Some(trouble));
        let passing = BusError::Away("no leader".to_owned());
        standing.set_topic("a", Some(passing.clone()));
        assert_eq!((standing.trouble("a"), standing.silence(&both)), (Some(passing), None));
        standing.set_topic("a", None);
        assert_eq!(standing.health(), BusHealth::Ready);
    }
}

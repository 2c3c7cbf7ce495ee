use std::fmt;
use std::time::Duration;

use tidegate_bus::Routes;

use crate::tls::{Tls, TlsError};

/// What Kafka allows in the name of a topic.
const TOPIC_NAME_MAX: usize = 249;
const PUBLISH_MS_MIN: u64 = 1_000;

#[derive(Debug, Clone)]
pub struct Options {
    /// `host:port`, several with commas.
    pub bootstrap_servers: String,
    pub routes: Routes,
    /// The consumer group of a queue is called by this, a dot, and the queue's name.
    pub group: String,
    pub login: Option<Login>,
    /// None: connections are in the clear.
    pub tls: Option<Tls>,
    /// Of topics that are missing and made by us.
    pub partitions: u16,
    /// The same; none: as the broker likes it.
    pub replication: Option<u16>,
    /// Within this a publication is answered.
    pub publish_ms: u64,
    /// How long the opening waits for a Kafka that is ready. Nothing is lost when it ends sooner: until Kafka is ready, the
    /// bus says that it is away.
    pub open_ms: u64,
    /// A record that would be larger travels without its text.
    pub record_bytes_max: usize,
}

/// By SASL.
#[derive(Clone)]
pub struct Login {
    pub mechanism: Mechanism,
    pub user: String,
    pub password: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mechanism {
    /// The password crosses the network as it is: without TLS, all who listen can read it.
    #[default]
    Plain,
    /// Client and broker prove to each other that they know the password.
    ScramSha256,
    ScramSha512,
}

impl Mechanism {
    /// As Kafka calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

/// What is wrong with the options. A Kafka that is away, or refuses, is no such thing: see
/// [`health`](tidegate_domain::Bus::health).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("the bus needs the address of a Kafka broker, such as \"localhost:9092\"")]
    NoServers,
    #[error("the bus needs the name of a consumer group")]
    NoGroup,
    #[error("no queue travels over the bus")]
    NoQueues,
    #[error(
        "{0:?} can't be the name of a topic: up to {TOPIC_NAME_MAX} letters, digits, '.', '_' and '-', \
         of which some are for \".high\""
    )]
    BadTopic(String),
    #[error("the topic {0:?} is named for two queues or lanes")]
    SharedTopic(String),
    #[error("a topic has at least one partition, and one replica")]
    NoPartitions,
    #[error("a publication takes {PUBLISH_MS_MIN} ms at least")]
    NoTime,
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    #[error("this build has no TLS to Kafka, and no SCRAM")]
    NoTls,
    #[error("the Kafka client refuses its settings: {0}")]
    Client(String),
}

impl Options {
    pub fn new(bootstrap_servers: impl Into<String>, routes: Routes) -> Self {
        Self {
            bootstrap_servers: bootstrap_servers.into(),
            routes,
            group: "tidegate".to_owned(),
            login: None,
            tls: None,
            partitions: 12,
            replication: None,
            publish_ms: 4_000,
            open_ms: 300,
            record_bytes_max: 900_000,
        }
    }

    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let servers = &self.bootstrap_servers;
        require(!servers.trim_matches([' ', ',']).is_empty(), OpenError::NoServers)?;
        require(!self.group.is_empty(), OpenError::NoGroup)?;
        require(self.partitions > 0 && self.replication != Some(0), OpenError::NoPartitions)?;
        require(self.publish_ms >= PUBLISH_MS_MIN, OpenError::NoTime)?;
        let scram = self.login.as_ref().is_some_and(|login| login.mechanism != Mechanism::Plain);
        require(crate::TLS || (self.tls.is_none() && !scram), OpenError::NoTls)?;
        let mut topics = self.routes.names();
        require(!topics.is_empty(), OpenError::NoQueues)?;
        if let Some(bad) = topics.iter().find(|name| !is_topic(name)) {
            return Err(OpenError::BadTopic(bad.clone()));
        }
        topics.sort_unstable();
        let shared = topics.windows(2).find(|pair| pair[0] == pair[1]);
        shared.map_or(Ok(()), |pair| Err(OpenError::SharedTopic(pair[0].clone())))
    }

    pub(crate) fn open_within(&self) -> Duration {
        Duration::from_millis(self.open_ms)
    }

    pub(crate) fn publish_within(&self) -> Duration {
        Duration::from_millis(self.publish_ms)
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mechanism, user, .. } = self;
        f.debug_struct("Login").field("mechanism", mechanism).field("user", user).finish_non_exhaustive()
    }
}

fn require(holds: bool, error: OpenError) -> Result<(), OpenError> {
    if holds { Ok(()) } else { Err(error) }
}

fn is_topic(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.is_empty() && name.len() <= TOPIC_NAME_MAX && !name.starts_with("..") && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use tidegate_domain::QueueName;

    use super::*;

    fn options(topics: &[&str]) -> Options {
        let named =
            |(n, name): (usize, &&str)| (QueueName::new(&format!("q{n}")).unwrap(), (*name).to_owned());
        Options::new("localhost:9092", Routes::new(topics.iter().enumerate().map(named)))
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(options(&["sms-outbound", "jobs_2.x"]).check(), Ok(()));
        assert_eq!(options(&[]).check(), Err(OpenError::NoQueues));
        for bad in ["", "sms outbound", "größe", "a/b", &"x".repeat(246)] {
            assert!(matches!(options(&[bad]).check(), Err(OpenError::BadTopic(_))), "{bad}");
        }
        let shared = OpenError::SharedTopic("a.high".to_owned());
        assert_eq!(options(&["a", "a.high"]).check(), Err(shared));
        let wrong = |change: fn(&mut Options)| {
            let mut options = options(&["a"]);
            change(&mut options);
            options.check().unwrap_err()
        };
        assert_eq!(wrong(|o| o.bootstrap_servers = " ,".to_owned()), OpenError::NoServers);
        assert_eq!(wrong(|o| o.group.clear()), OpenError::NoGroup);
        assert_eq!(wrong(|o| o.partitions = 0), OpenError::NoPartitions);
        assert_eq!(wrong(|o| o.replication = Some(0)), OpenError::NoPartitions);
        assert_eq!(wrong(|o| o.publish_ms = 10), OpenError::NoTime);
    }

    #[test]
    fn a_password_is_not_shown() {
        let mechanism = Mechanism::Plain;
        let login = Login { mechanism, user: "alice".to_owned(), password: "open sesame".to_owned() };
        let identity = crate::Identity { certificate_pem: String::new(), key_pem: "open sesame".to_owned() };
        let tls = Some(Tls { roots_pem: None, identity: Some(identity) });
        let shown = format!("{:?}", Options { login: Some(login), tls, ..options(&["a"]) });
        assert!(shown.contains("alice") && !shown.contains("sesame"), "{shown}");
    }
}

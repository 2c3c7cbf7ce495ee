use std::fmt;
use std::time::Duration;

use crate::config::reader::Reader;

#[derive(Clone)]
pub struct KafkaSettings {
    /// HOST:PORT each.
    pub brokers: Vec<String>,
    /// Those who share the records.
    pub group: String,
    /// Of topics that are missing and therefore made.
    pub partitions: u32,
    /// The broker's default when there is none.
    pub replication: Option<u32>,
    /// Who logs in (SASL PLAIN), and with what.
    pub login: Option<(String, String)>,
    pub publish_timeout: Duration,
}

/// Its client waits for an answer for a quarter of an hour at most.
const PUBLISH_MS_MAX: u64 = 600_000;

impl KafkaSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let brokers: Vec<String> = reader.texts("kafka.brokers").into_iter().map(str::to_owned).collect();
        if brokers.is_empty() && reader.are_sound(["kafka.brokers"; 2]) {
            reader.problem_with_fix("kafka.brokers", "names nobody", "such as [\"127.0.0.1:9092\"]");
        }
        for wrong in brokers.iter().filter(|broker| !is_address(broker)) {
            let what = format!("{wrong:?} is not an address with a port");
            reader.problem_with_fix("kafka.brokers", what, "such as \"127.0.0.1:9092\"");
        }
        let group = reader.text("kafka.group");
        if group.is_empty() || group.len() > 200 || group.chars().any(char::is_control) {
            reader.problem_with_fix("kafka.group", "must be 1 to 200 characters", "such as \"tidegate\"");
        }
        let (user, password) = (reader.text("kafka.user"), reader.text("kafka.password"));
        if user.is_empty() && !password.is_empty() {
            reader.problem_with_fix("kafka.password", "is for a user, and there is none", "set kafka.user");
        }
        let small = |number: u64| u32::try_from(number).unwrap_or(1);
        Self {
            brokers,
            group: group.to_owned(),
            partitions: small(reader.number("kafka.partitions", 1..=10_000)),
            replication: Some(small(reader.number("kafka.replication", 0..=100))).filter(|count| *count > 0),
            login: (!user.is_empty()).then(|| (user.to_owned(), password.to_owned())),
            publish_timeout: reader.millis("kafka.publish_timeout_ms", 1_000..=PUBLISH_MS_MAX),
        }
    }
}

fn is_address(text: &str) -> bool {
    let is_host =
        |host: &str| !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || "/,@".contains(c));
    text.rsplit_once(':')
        .is_some_and(|(host, port)| is_host(host) && port.parse().is_ok_and(|port: u16| port > 0))
}

impl fmt::Debug for KafkaSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { brokers, group, .. } = self;
        f.debug_struct("KafkaSettings")
            .field("brokers", brokers)
            .field("group", group)
            .finish_non_exhaustive()
    }
}

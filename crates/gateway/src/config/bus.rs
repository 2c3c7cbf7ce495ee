mod kafka;
mod rabbitmq;

use std::collections::BTreeMap;

use tidegate_domain::QueueName;

use super::layers::Table;
use super::problem::{Origin, Problem};
use super::queues::{ChannelKind, is_reserved};
use super::reader::Reader;
use super::{MS_MAX, QueuesSettings};

pub use self::kafka::{KafkaSettings, LoginSettings, SaslMechanism};
pub use self::rabbitmq::RabbitMqSettings;

/// How claimed messages reach senders in other processes.
#[derive(Debug, Clone)]
pub struct BusSettings {
    pub engine: BusEngine,
    pub when_down: WhenDown,
    /// Messages of one queue on their way at the same time.
    pub in_transit_max: usize,
    /// How long one may be on its way before it is published again.
    pub transit_ms: u64,
    pub record_bytes_max: usize,
    /// The queues that travel, each with its name on the bus.
    pub topics: BTreeMap<QueueName, String>,
}

#[derive(Debug, Clone)]
pub enum BusEngine {
    Kafka(KafkaSettings),
    RabbitMq(RabbitMqSettings),
}

/// What becomes of admissions while the bus is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenDown {
    /// They wait in the ledger.
    Accept,
    /// They are refused, and nothing is counted.
    Reject,
}

#[derive(Clone, Copy)]
enum Kind {
    None,
    Kafka,
    RabbitMq,
}

/// Keys whose values are nobody's business, not even `check-config`'s.
pub const SECRET_KEYS: [&str; 2] = ["kafka.password", "rabbitmq.url"];

const KINDS: [(&str, Kind); 3] = [("none", Kind::None), ("kafka", Kind::Kafka), ("rabbitmq", Kind::RabbitMq)];
/// What the buses append to a topic's name.
const BESIDE_A_TOPIC: [&str; 4] = [".high", ".low", ".dead", ".probe"];
/// Kafka's client takes messages of a thousand million bytes, and there is more to one than its record.
const RECORD_BYTES_MAX: u64 = 900_000_000;
const REACTIONS: [(&str, WhenDown); 2] = [("accept", WhenDown::Accept), ("reject", WhenDown::Reject)];

/// Both engines are checked, whichever is used.
pub(super) struct Buses {
    /// `None` when senders claim from the ledger themselves.
    pub chosen: Option<BusSettings>,
    pub kafka: KafkaSettings,
    pub rabbitmq: RabbitMqSettings,
}

impl Buses {
    pub fn read(reader: &mut Reader<'_>, queues: &QueuesSettings, tables: &[Table]) -> Self {
        let kind = reader.one_of("bus.kind", &KINDS);
        let when_down = reader.one_of("bus.when_down", &REACTIONS).unwrap_or(WhenDown::Accept);
        let in_transit_max = reader.size("bus.in_transit_max", 1..=1_000_000);
        let transit_ms = reader.number("bus.transit_ms", 1_000..=MS_MAX);
        let record_bytes_max = reader.size("bus.record_bytes_max", 1_024..=RECORD_BYTES_MAX);
        let (kafka, rabbitmq) = (KafkaSettings::read(reader), RabbitMqSettings::read(reader));
        if let Some(Kind::Kafka) = kind {
            kafka.warn(reader);
        }
        let engine = match kind {
            Some(Kind::None) => None,
            Some(Kind::RabbitMq) => Some(BusEngine::RabbitMq(rabbitmq.clone())),
            Some(Kind::Kafka) | None => Some(BusEngine::Kafka(kafka.clone())),
        };
        let chosen = engine.map(|engine| {
            let topics = topics(reader, queues, tables);
            BusSettings { engine, when_down, in_transit_max, transit_ms, record_bytes_max, topics }
        });
        Self { chosen, kafka, rabbitmq }
    }
}

impl BusSettings {
    pub fn carries(&self, queue: &QueueName) -> bool {
        self.topics.contains_key(queue)
    }
}

/// Devices are connected to gateways, so what they read does not travel.
fn topics(reader: &mut Reader<'_>, queues: &QueuesSettings, tables: &[Table]) -> BTreeMap<QueueName, String> {
    let mut topics: BTreeMap<QueueName, String> = BTreeMap::new();
    let mut wrong = |name: &QueueName, what: String, fix: &str| {
        let table = tables.iter().find(|table| table.name() == Some(name.as_str()));
        let origin = table.map_or(&Origin::Together, |table| table.origin_of("topic"));
        reader.problems.push(Problem::new(origin, "queues.topic", what).fix(fix));
    };
    for (name, channel, queue) in queues.pushed() {
        if channel == ChannelKind::Inbox {
            continue;
        }
        let topic = queue.topic.clone().unwrap_or_else(|| format!("{name}-outbound"));
        if is_reserved(&topic) {
            let what = format!("the queue {name} would travel as {topic:?}, which a bus refuses");
            wrong(name, what, "give it a topic of its own");
        }
        if let Some((other, shared)) =
            topics.iter().find_map(|(other, known)| Some((other, shared_name(known, &topic)?)))
        {
            let what = format!("the queues {other} and {name} would both travel as {shared:?}");
            wrong(name, what, "give one of them another topic");
        }
        topics.insert(name.clone(), topic);
    }
    if topics.is_empty() {
        let fix = "choose \"none\", or give a queue the channel \"log\" or \"webhook\"";
        reader.problem_with_fix("bus.kind", "no queue travels over the bus", fix);
    }
    topics
}

/// A name that two topics would both have on the bus: lanes, and what else stands beside a topic, are named after it.
fn shared_name<'a>(one: &'a str, other: &'a str) -> Option<&'a str> {
    let beside = |topic: &str, name: &str| {
        name.strip_prefix(topic).is_some_and(|rest| rest.is_empty() || BESIDE_A_TOPIC.contains(&rest))
    };
    [(one, other), (other, one)].into_iter().find(|(topic, name)| beside(topic, name)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::load;

    #[test]
    fn senders_claim_from_the_ledger_unless_a_bus_is_chosen() {
        assert!(load("").unwrap().settings.bus.is_none());
        let text = "[bus]\nkind = \"kafka\"\nwhen_down = \"reject\"\n[kafka]\nbrokers = [\"k1:9092\", \"k2:9092\"]\n";
        let bus = load(text).unwrap().settings.bus.unwrap();
        let BusEngine::Kafka(kafka) = &bus.engine else { panic!("{bus:?}") };
        assert_eq!((kafka.brokers.join(","), bus.when_down), ("k1:9092,k2:9092".into(), WhenDown::Reject));
        assert_eq!(bus.topics[&QueueName::new("sms").unwrap()], "sms-outbound");
    }

    #[test]
    fn pushed_queues_travel_under_names_of_their_own_and_inboxes_stay() {
        let text = "[bus]\nkind = \"rabbitmq\"\n[inbox]\nsecrets = [\"0123456789abcdef\"]\n\
                    [[queues]]\nname = \"mail\"\nchannel = \"log\"\ntopic = \"post\"\n\
                    [[queues]]\nname = \"devices\"\nchannel = \"inbox\"\n[[queues]]\nname = \"jobs\"\n";
        let bus = load(text).unwrap().settings.bus.unwrap();
        let topics: Vec<_> = bus.topics.iter().map(|(name, topic)| (name.as_str(), topic.as_str())).collect();
        assert_eq!(topics, [("mail", "post"), ("sms", "sms-outbound")]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let text = "[bus]\nkind = \"kafk\"\nwhen_down = \"drop\"\n[kafka]\nbrokers = []\n[rabbitmq]\nurl = \"http://:sesame@x\"\n\
                    [[queues]]\nname = \"a\"\ntopic = \"b\"\n[[queues]]\nname = \"c\"\nchannel = \"log\"\ntopic = \"a b\"\n";
        let problems = load(text).unwrap_err();
        for part in [
            "bus.kind: \"kafk\" is not known; choose \"none\" or \"kafka\" or \"rabbitmq\"; did you mean \"kafka\"?",
            "bus.when_down: \"drop\" is not known",
            "kafka.brokers: names nobody",
            "queues.topic: is for queues with a channel",
            "queues.topic: \"a b\" must be",
        ] {
            assert!(problems.contains(part), "{part}\nnot in {problems}");
        }
        assert!(!problems.contains("sesame"), "{problems}");
    }

    #[test]
    fn two_queues_do_not_share_a_topic_and_passwords_stay_hidden() {
        let text = "[bus]\nkind = \"kafka\"\n[kafka]\nuser = \"app\"\npassword = \"sesame\"\n\
                    [[queues]]\nname = \"a\"\nchannel = \"log\"\ntopic = \"sms-outbound\"\n";
        let problems = load(text).unwrap_err();
        assert!(
            problems.contains("the queues a and sms would both travel as \"sms-outbound\""),
            "{problems}"
        );
        for name in ["mail.high", "mail.low", "mail.dead"] {
            let topics = |one, other| {
                load(&format!(
                    "[bus]\nkind = \"kafka\"\n[[queues]]\nname = \"a\"\nchannel = \"log\"\ntopic = \"{one}\"\n\
                     [[queues]]\nname = \"b\"\nchannel = \"log\"\ntopic = \"{other}\"\n"
                ))
            };
            for problems in [topics("mail", name), topics(name, "mail")] {
                let expected = format!("the queues a and b would both travel as {name:?}");
                assert!(problems.as_ref().is_err_and(|said| said.contains(&expected)), "{problems:?}");
            }
        }
        let loaded =
            load("[bus]\nkind = \"kafka\"\n[kafka]\nuser = \"app\"\npassword = \"sesame\"\n").unwrap();
        assert!(!format!("{loaded:?}").contains("sesame"), "{loaded:?}");
    }
}

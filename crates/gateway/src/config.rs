//! Settings: compiled-in defaults, then a file, the environment, flags; all checked before anything starts.

mod bus;
mod channels;
mod layers;
mod ledger;
mod limits;
mod policies;
mod principals;
mod problem;
mod queues;
mod quotas;
mod reader;
mod redis;
mod role;
mod sections;
mod sender;
mod slots;

use std::net::SocketAddr;

use tidegate_domain::QueueName;
use tidegate_domain::limits::Policy;
use tidegate_edge::{GateOptions, Limits, PrincipalSpec, bind_is_loopback};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::filter::Targets;

use self::bus::Buses;
use self::layers::Layers;
use self::ledger::Ledgers;
use self::reader::Reader;

pub use self::bus::{
    BusEngine, BusSettings, KafkaSettings, LoginSettings, RabbitMqSettings, SaslMechanism, WhenDown,
};
pub use self::channels::{ChannelsSettings, InboxSettings, WebhookSettings};
pub use self::layers::{ENVIRONMENT_PREFIX, Sources};
pub use self::ledger::{EmbeddedSettings, LedgerSettings, PostgresSettings, SharedSettings};
pub use self::problem::{Origin, Problem, Problems};
pub use self::queues::{ChannelKind, Dedup, Outlet, PullMode, QueueSettings, QueuesSettings, SMS};
pub use self::redis::{BucketsSettings, RedisSettings};
pub use self::role::Role;
pub use self::sections::{Fault, Sections};
pub use self::sender::{SenderSettings, StatsSettings, WarningUrl};
pub use self::slots::SlotSettings;

/// The reference of all settings, and their defaults.
pub const DEFAULT: &str = include_str!("config/default.toml");

/// The file that is read when no other is named.
pub const FILE: &str = "tidegate.toml";

#[derive(Debug, Clone)]
pub struct Settings {
    pub listen: SocketAddr,
    pub role: Role,
    pub limits: Limits,
    /// Of requests that carry many messages or events.
    pub batch_limits: Limits,
    pub ledger: LedgerSettings,
    /// Admissions under way in front of the ledger, whichever it is.
    pub intake_max: usize,
    /// How far ahead of now a message may be deferred when its quota is used up.
    pub defer_horizon_ms: u64,
    /// The Redis in front of the ledger's quotas, if there is one.
    pub accelerator: Option<RedisSettings>,
    pub slots: SlotSettings,
    /// What stands between gateways and senders, if anything does.
    pub bus: Option<BusSettings>,
    pub sender: SenderSettings,
    pub queues: QueuesSettings,
    pub channels: ChannelsSettings,
    pub stats: StatsSettings,
    pub principals: Vec<PrincipalSpec>,
    pub policies: Vec<Policy>,
    pub gate: GateOptions,
    pub buckets: BucketsSettings,
    /// Buckets of policies kept in memory at the same time.
    pub buckets_max: usize,
    pub log: LogSettings,
}

#[derive(Debug, Clone)]
pub struct LogSettings {
    pub level: String,
    pub format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Auto,
    Text,
    Json,
}

/// Checked settings, and where each value that is not the default comes from.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub settings: Settings,
    pub changed: Vec<Changed>,
    /// What looks odd, and is no reason not to start.
    pub warnings: Vec<Problem>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    pub key: String,
    pub value: String,
    pub origin: Origin,
}

const MS_MAX: u64 = 3_600_000;
const YEAR_MS: u64 = 365 * 86_400_000;
const GIB: u64 = 1 << 30;

impl Loaded {
    /// As far as the configuration itself can judge; it opens nothing.
    pub fn from_sources(sources: &Sources) -> Result<Self, Problems> {
        Self::checked(sources, |_| Vec::new())
    }

    /// With what adapters find wrong, told together with the rest: no start fails for a reason that could be known
    /// before it.
    pub fn checked(sources: &Sources, check: impl FnOnce(&Sections) -> Vec<Fault>) -> Result<Self, Problems> {
        let layers = Layers::collect(DEFAULT, sources);
        let mut reader = Reader::new(&layers);
        let (settings, sections) = Settings::read(&mut reader, &layers);
        for Fault { key, what, fix } in check(&sections) {
            reader.problem_with_fix(key, what, fix);
        }
        reader.problems.sort_by_key(|problem| problem.origin.line());
        match settings {
            Some(settings) if reader.problems.is_empty() => {
                Ok(Self { settings, changed: changed(&layers), warnings: reader.warnings })
            }
            _ => Err(Problems(reader.problems)),
        }
    }
}

impl Settings {
    /// None when something is wrong that no default can stand for.
    fn read(reader: &mut Reader<'_>, layers: &Layers) -> (Option<Self>, Sections) {
        let limits = read_limits(reader);
        let batch_body_bytes_max = reader.size("server.batch_body_bytes_max", 64..=GIB);
        let intake_max = reader.size("ledger.intake_max", 1..=1_000_000);
        let ledgers = Ledgers::read(reader);
        let ledger = ledgers.chosen();
        let role = Role::read(reader, ledger.as_ref());
        let redis = RedisSettings::read(reader);
        let (defer_horizon_ms, accelerator) = quotas::read(reader, ledger.as_ref(), &redis);
        let slots = SlotSettings::read(reader);
        let sender = SenderSettings::read(reader);
        let queues = QueuesSettings::read(reader, &layers.queues, &sender);
        let buses = Buses::read(reader, &queues, &layers.queues);
        let channels = ChannelsSettings::read(reader, &queues, &sender);
        let stats = StatsSettings::read(reader);
        let log = LogSettings::read(reader);
        let principals = principals::read(&layers.principals, &mut reader.problems);
        let policies = policies::read(&layers.policies, &mut reader.problems);
        let (gate, buckets_max) = limits::read(reader);
        let buckets = BucketsSettings::read(reader, redis.clone());
        let listen = read_listen(reader, layers.principals.is_empty());
        let Buses { chosen: bus, kafka, rabbitmq } = buses;
        let sections = Sections {
            listen,
            ledger: ledger.clone(),
            postgres: ledgers.postgres,
            redis,
            kafka,
            rabbitmq,
            channels: channels.clone(),
            stats: stats.clone(),
        };
        let settings = || {
            Some(Self {
                listen: listen?,
                role: role?,
                limits,
                batch_limits: Limits {
                    body_bytes_max: batch_body_bytes_max.max(limits.body_bytes_max),
                    ..limits
                },
                ledger: ledger?,
                intake_max,
                defer_horizon_ms,
                accelerator,
                slots: slots?,
                bus,
                sender,
                queues,
                channels,
                stats,
                principals,
                policies,
                gate,
                buckets: buckets?,
                buckets_max,
                log: log?,
            })
        };
        (settings(), sections)
    }
}

impl Settings {
    /// The queues that this process pushes out, each with its channel.
    pub fn pushed(&self) -> impl Iterator<Item = (&QueueName, ChannelKind, &QueueSettings)> {
        self.queues.pushed().filter(|(_, channel, _)| self.role.pushes(*channel))
    }

    /// Attempts of a channel at the same time. Each of a webhook needs a connection.
    pub fn concurrency(&self, channel: ChannelKind) -> usize {
        match channel {
            ChannelKind::Webhook => self.sender.concurrency.min(self.channels.webhook.connections_max),
            ChannelKind::Log | ChannelKind::Inbox => self.sender.concurrency,
        }
    }
}

fn read_limits(reader: &mut Reader<'_>) -> Limits {
    Limits {
        connections_max: reader.size("server.connections_max", 1..=1_000_000),
        connections_per_client_percent: reader.size("server.connections_per_client_percent", 1..=100),
        first_byte_timeout: reader.millis("server.first_byte_timeout_ms", 1..=MS_MAX),
        header_timeout: reader.millis("server.header_timeout_ms", 1..=MS_MAX),
        body_timeout: reader.millis("server.body_timeout_ms", 1..=MS_MAX),
        idle_timeout: reader.millis("server.idle_timeout_ms", 1..=MS_MAX),
        write_timeout: reader.millis("server.write_timeout_ms", 1..=MS_MAX),
        // hyper refuses a read buffer below 8 KiB.
        header_bytes_max: reader.size("server.header_bytes_max", 8_192..=1_048_576),
        body_bytes_max: reader.size("server.body_bytes_max", 64..=GIB),
        bodies_bytes_max: reader.size("server.bodies_bytes_max", 65_536..=1_024 * GIB),
        bodies_per_client_percent: reader.size("server.bodies_per_client_percent", 1..=100),
        json_depth_max: reader.size("server.json_depth_max", 1..=100),
        drain_timeout: reader.millis("server.drain_timeout_ms", 0..=MS_MAX),
    }
}

fn read_listen(reader: &mut Reader<'_>, open: bool) -> Option<SocketAddr> {
    let text = reader.text("server.listen");
    // The one name that everybody types; other names would need a resolver and could mean several addresses.
    let numeric = text.replacen("localhost:", "127.0.0.1:", 1);
    let Ok(listen) = numeric.parse::<SocketAddr>() else {
        let fix = "write ADDR:PORT, such as \"127.0.0.1:8080\" or \"[::1]:8080\"";
        reader.problem_with_fix("server.listen", format!("{text:?} is not an address with a port"), fix);
        return None;
    };
    if open && !bind_is_loopback(&listen) {
        let what = format!("{listen} can be reached from other machines, and no principals are configured");
        let fix = "add [[principals]] (see `tidegate hash-password` and `tidegate new-api-key`), or listen on 127.0.0.1";
        reader.problem_with_fix("server.listen", what, fix);
    }
    Some(listen)
}

impl LogSettings {
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let choices = [("auto", LogFormat::Auto), ("text", LogFormat::Text), ("json", LogFormat::Json)];
        let format = reader.one_of("log.format", &choices);
        let level = reader.text("log.level");
        // A lone word that is no level would be taken for the name of a part, and silence all the others.
        let lone = |directive: &&str| !directive.contains('=') && directive.parse::<LevelFilter>().is_err();
        let wrong = match (level.parse::<Targets>(), level.split(',').map(str::trim).find(lone)) {
            (Err(cause), _) => Some(cause.to_string()),
            (_, Some(word)) => Some(format!("{word:?} is not a level")),
            (Ok(_), None) => None,
        };
        if let Some(wrong) = wrong {
            let fix = "choose \"error\", \"warn\", \"info\", \"debug\" or \"trace\"";
            reader.problem_with_fix("log.level", format!("{level:?}: {wrong}"), fix);
        }
        Some(Self { level: level.to_owned(), format: format? })
    }
}

/// The hashes of principals stay out, and so do secrets.
fn changed(layers: &Layers) -> Vec<Changed> {
    let values =
        layers.entries.iter().filter(|(_, entry)| entry.origin != Origin::Default).map(|(key, entry)| {
            let secret =
                [&channels::SECRET_KEYS[..], &redis::SECRET_KEYS, &ledger::SECRET_KEYS, &bus::SECRET_KEYS];
            let hidden = secret.into_iter().flatten().any(|known| known == key);
            let value = if hidden { "(hidden)".to_owned() } else { entry.value.to_string() };
            Changed { key: key.clone(), value, origin: entry.origin.clone() }
        });
    let named = |list: &'static str, tables: &[layers::Table]| -> Vec<Changed> {
        let named = tables.iter().map(|table| {
            let name = table.entries.get("name").map(|entry| entry.value.to_string()).unwrap_or_default();
            Changed { key: list.to_owned(), value: name, origin: table.origin.clone() }
        });
        named.collect()
    };
    let lists = [
        named("principals", &layers.principals),
        named("policies", &layers.policies),
        named("queues", &layers.queues),
    ];
    values.chain(lists.into_iter().flatten()).collect()
}

/// For tests: the policies of a file.
#[cfg(test)]
pub fn policies_in(text: &str) -> Vec<Policy> {
    let file = Some(("tidegate.toml".into(), text.to_owned()));
    match Loaded::from_sources(&Sources { file, ..Sources::default() }) {
        Ok(loaded) => loaded.settings.policies,
        Err(problems) => panic!("{problems}"),
    }
}

#[cfg(test)]
pub(crate) mod tests;

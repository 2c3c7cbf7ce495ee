use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
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
    pub login: Option<LoginSettings>,
    pub tls: bool,
    /// The file of certificates that the brokers' ones are checked against; the system's when there is none.
    pub tls_roots: Option<PathBuf>,
    /// The files of the certificate that is shown to brokers, and of its key.
    pub tls_certificate: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    pub publish_timeout: Duration,
}

/// Who logs in, and how.
#[derive(Clone)]
pub struct LoginSettings {
    pub mechanism: SaslMechanism,
    pub user: String,
    pub password: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaslMechanism {
    Plain,
    ScramSha256,
    ScramSha512,
}

/// As Kafka calls them.
const MECHANISMS: [(&str, SaslMechanism); 3] = [
    ("PLAIN", SaslMechanism::Plain),
    ("SCRAM-SHA-256", SaslMechanism::ScramSha256),
    ("SCRAM-SHA-512", SaslMechanism::ScramSha512),
];

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
        let login = read_login(reader);
        let tls = reader.one_of("kafka.tls", &[("off", false), ("on", true)]);
        let [tls_roots, tls_certificate, tls_key] = read_files(reader, tls);
        let small = |number: u64| u32::try_from(number).unwrap_or(1);
        Self {
            brokers,
            group: group.to_owned(),
            partitions: small(reader.number("kafka.partitions", 1..=10_000)),
            replication: Some(small(reader.number("kafka.replication", 0..=100))).filter(|count| *count > 0),
            login,
            tls: tls.unwrap_or(false),
            tls_roots,
            tls_certificate,
            tls_key,
            publish_timeout: reader.millis("kafka.publish_timeout_ms", 1_000..=PUBLISH_MS_MAX),
        }
    }

    /// A password that all can read who listen on the network is worth a word, once it is used.
    pub(super) fn warn(&self, reader: &mut Reader<'_>) {
        let plain = self.login.as_ref().is_some_and(|login| login.mechanism == SaslMechanism::Plain);
        if plain && !self.tls && !self.brokers.iter().all(|broker| is_here(broker)) {
            let what = "crosses the network in the clear, by PLAIN without TLS";
            let fix = "write kafka.tls = \"on\", or choose a SCRAM as kafka.sasl_mechanism";
            reader.warning("kafka.password", what, fix);
        }
    }
}

fn read_login(reader: &mut Reader<'_>) -> Option<LoginSettings> {
    let (user, password) = (reader.text("kafka.user"), reader.text("kafka.password"));
    let mechanism = reader.one_of("kafka.sasl_mechanism", &MECHANISMS).unwrap_or(SaslMechanism::Plain);
    if !user.is_empty() {
        return Some(LoginSettings { mechanism, user: user.to_owned(), password: password.to_owned() });
    }
    if !password.is_empty() {
        reader.problem_with_fix("kafka.password", "is for a user, and there is none", "set kafka.user");
    }
    if mechanism != SaslMechanism::Plain {
        let fix = "set kafka.user, or leave this out";
        reader.problem_with_fix("kafka.sasl_mechanism", "is for a user, and there is none", fix);
    }
    None
}

/// Roots, certificate and key. Each is for TLS, and a certificate is worth nothing without its key.
fn read_files(reader: &mut Reader<'_>, tls: Option<bool>) -> [Option<PathBuf>; 3] {
    let files = FILES.map(|key| Some(reader.text(key)).filter(|path| !path.is_empty()).map(PathBuf::from));
    for (key, _) in FILES.iter().zip(&files).filter(|(_, path)| path.is_some() && tls == Some(false)) {
        let fix = "write kafka.tls = \"on\", or leave this empty";
        reader.problem_with_fix(key, "is for a connection over TLS", fix);
    }
    let [_, certificate, key] = FILES;
    match &files {
        [_, Some(_), None] => reader.problem_with_fix(certificate, "has no key", format!("set {key}")),
        [_, None, Some(_)] => {
            reader.problem_with_fix(key, "has no certificate", format!("set {certificate}"))
        }
        _ => {}
    }
    files
}

const FILES: [&str; 3] = ["kafka.tls_roots", "kafka.tls_certificate", "kafka.tls_key"];

fn is_address(text: &str) -> bool {
    let is_host =
        |host: &str| !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || "/,@".contains(c));
    text.rsplit_once(':')
        .is_some_and(|(host, port)| is_host(host) && port.parse().is_ok_and(|port: u16| port > 0))
}

/// On this machine.
fn is_here(broker: &str) -> bool {
    let host = broker.rsplit_once(':').map_or(broker, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

impl fmt::Debug for LoginSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginSettings").field("mechanism", &self.mechanism).finish_non_exhaustive()
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::load;
    use crate::config::{BusEngine, Loaded};

    fn kafka(loaded: &Loaded) -> &KafkaSettings {
        let Some(BusEngine::Kafka(kafka)) = loaded.settings.bus.as_ref().map(|bus| &bus.engine) else {
            panic!("{loaded:?}")
        };
        kafka
    }

    #[test]
    fn tls_and_logins_come_with_all_that_belongs_to_them() {
        let plain = load("[bus]\nkind = \"kafka\"\n").unwrap();
        assert!(!kafka(&plain).tls && kafka(&plain).login.is_none() && kafka(&plain).tls_roots.is_none());
        let text = "[bus]\nkind = \"kafka\"\n[kafka]\ntls = \"on\"\ntls_roots = \"ca.pem\"\ntls_certificate = \"me.crt\"\n\
                    tls_key = \"me.key\"\nuser = \"app\"\npassword = \"sesame\"\nsasl_mechanism = \"SCRAM-SHA-256\"\n";
        let loaded = load(text).unwrap();
        let KafkaSettings { tls, tls_roots, tls_certificate, tls_key, login, .. } = kafka(&loaded);
        let files = [tls_roots, tls_certificate, tls_key].map(|path| path.clone().unwrap());
        assert_eq!((*tls, files), (true, ["ca.pem", "me.crt", "me.key"].map(PathBuf::from)));
        let login = login.as_ref().unwrap();
        assert_eq!((login.user.as_str(), login.mechanism), ("app", SaslMechanism::ScramSha256));
        assert!(!format!("{loaded:?}").contains("sesame"));
    }

    #[test]
    fn half_of_a_setting_is_told() {
        let text = "[kafka]\ntls_roots = \"ca.pem\"\ntls_key = \"me.key\"\nsasl_mechanism = \"SCRAM-SHA-512\"\npassword = \"sesame\"\n";
        let problems = load(text).unwrap_err();
        for part in [
            "tidegate.toml:2: kafka.tls_roots: is for a connection over TLS; write kafka.tls = \"on\"",
            "tidegate.toml:3: kafka.tls_key: is for a connection over TLS; write kafka.tls = \"on\"",
            "tidegate.toml:3: kafka.tls_key: has no certificate; set kafka.tls_certificate",
            "tidegate.toml:4: kafka.sasl_mechanism: is for a user, and there is none; set kafka.user",
            "tidegate.toml:5: kafka.password: is for a user, and there is none; set kafka.user",
        ] {
            assert!(problems.contains(part), "{part}\nnot in {problems}");
        }
        assert!(!problems.contains("sesame"), "{problems}");
        let problems =
            load("[kafka]\ntls = \"yes\"\ntls_certificate = \"me.crt\"\nsasl_mechanism = \"scram\"\n");
        let problems = problems.unwrap_err();
        for part in [
            "tidegate.toml:2: kafka.tls: \"yes\" is not known; choose \"off\" or \"on\"",
            "tidegate.toml:3: kafka.tls_certificate: has no key; set kafka.tls_key",
            "tidegate.toml:4: kafka.sasl_mechanism: \"scram\" is not known; choose \"PLAIN\"",
        ] {
            assert!(problems.contains(part), "{part}\nnot in {problems}");
        }
    }

    #[test]
    fn a_password_in_the_clear_is_warned_of_beyond_this_machine() {
        let warnings = |brokers: &str, more: &str| {
            let text = format!(
                "[bus]\nkind = \"kafka\"\n[kafka]\nbrokers = [{brokers}]\nuser = \"app\"\npassword = \"sesame\"\n{more}"
            );
            let warnings = load(&text).unwrap().warnings;
            warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        for here in ["\"127.0.0.1:9092\"", "\"localhost:9092\", \"[::1]:9092\""] {
            assert_eq!(warnings(here, ""), "", "{here}");
        }
        for there in ["\"kafka:9092\"", "\"localhost:9092\", \"10.0.0.7:9092\""] {
            let told = warnings(there, "");
            assert!(
                told.starts_with("tidegate.toml:6: kafka.password: crosses the network in the clear"),
                "{told}"
            );
            assert!(!told.contains("sesame"), "{told}");
            for safe in ["tls = \"on\"\n", "sasl_mechanism = \"SCRAM-SHA-256\"\n"] {
                assert_eq!(warnings(there, safe), "", "{safe}");
            }
        }
        let unused = "[kafka]\nbrokers = [\"kafka:9092\"]\nuser = \"app\"\n";
        assert!(load(unused).unwrap().warnings.is_empty());
    }
}

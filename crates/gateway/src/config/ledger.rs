use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_domain::Durability;

use super::reader::Reader;
use super::{GIB, MS_MAX, YEAR_MS};

/// Which ledger, with that ledger's own settings: there are no half-set ones.
#[derive(Debug, Clone)]
pub enum LedgerSettings {
    Embedded(EmbeddedSettings),
    Postgres(PostgresSettings),
}

/// What every ledger heeds.
#[derive(Debug, Clone)]
pub struct SharedSettings {
    pub pending_max: u64,
    /// For messages of high priority.
    pub pending_hard_max: u64,
    pub group_max: usize,
    pub idempotency_window_ms: u64,
    pub retention_ms: u64,
    pub slots_max: usize,
    pub slot_retention_ms: u64,
}

#[derive(Debug, Clone)]
pub struct EmbeddedSettings {
    pub path: PathBuf,
    pub sync: Durability,
    pub body_cache_bytes: usize,
    pub idempotency_keys_max: usize,
    pub readers: usize,
    pub shared: SharedSettings,
}

#[derive(Clone)]
pub struct PostgresSettings {
    /// May hold a password. The PostgreSQL client checks it.
    pub url: String,
    pub tls: bool,
    /// The file of certificates that the server's is checked against; the system's when there is none.
    pub tls_roots: Option<PathBuf>,
    pub connections_max: usize,
    pub connection_wait: Duration,
    pub connect_timeout: Duration,
    pub statement_timeout: Duration,
    pub lock_timeout: Duration,
    pub allow_unsafe_server: bool,
    pub shared: SharedSettings,
}

/// Keys whose values are nobody's business, not even `check-config`'s.
pub const SECRET_KEYS: [&str; 1] = ["postgres.url"];

#[derive(Clone, Copy)]
enum Kind {
    Embedded,
    Postgres,
}

/// Both are checked, whichever is used: a slip should not wait for the day of the change.
pub(super) struct Ledgers {
    kind: Option<Kind>,
    embedded: EmbeddedSettings,
    pub postgres: PostgresSettings,
}

impl Ledgers {
    pub fn read(reader: &mut Reader<'_>) -> Self {
        let kind =
            reader.one_of("ledger.kind", &[("embedded", Kind::Embedded), ("postgres", Kind::Postgres)]);
        let shared = SharedSettings::read(reader);
        let embedded = EmbeddedSettings::read(reader, shared.clone());
        Self { kind, embedded, postgres: PostgresSettings::read(reader, shared) }
    }

    pub fn chosen(&self) -> Option<LedgerSettings> {
        Some(match self.kind? {
            Kind::Embedded => LedgerSettings::Embedded(self.embedded.clone()),
            Kind::Postgres => LedgerSettings::Postgres(self.postgres.clone()),
        })
    }
}

impl SharedSettings {
    fn read(reader: &mut Reader<'_>) -> Self {
        let pending_max = reader.number("ledger.pending_max", 1..=1_000_000_000);
        let high_percent = reader.number("ledger.pending_high_percent", 0..=100);
        let settings = Self {
            pending_max,
            pending_hard_max: pending_max + (pending_max * high_percent).div_ceil(100),
            group_max: reader.size("ledger.group_max", 1..=65_536),
            idempotency_window_ms: reader.number("ledger.idempotency_window_ms", 1_000..=YEAR_MS),
            retention_ms: reader.number("ledger.retention_ms", 1_000..=100 * YEAR_MS),
            slots_max: reader.size("slots.slots_max", 1..=1_000_000_000),
            slot_retention_ms: reader.number("slots.retention_ms", 1_000..=100 * YEAR_MS),
        };
        if settings.retention_ms < settings.idempotency_window_ms
            && reader.are_sound(["ledger.retention_ms", "ledger.idempotency_window_ms"])
        {
            let window = settings.idempotency_window_ms;
            let what =
                format!("{} is shorter than ledger.idempotency_window_ms ({window})", settings.retention_ms);
            let fix = "a repeated key must find its message: raise this, or lower the window";
            reader.problem_with_fix("ledger.retention_ms", what, fix);
        }
        settings
    }
}

impl EmbeddedSettings {
    fn read(reader: &mut Reader<'_>, shared: SharedSettings) -> Self {
        let path = reader.text("ledger.path");
        if path.is_empty() {
            reader.problem_with_fix("ledger.path", "is empty", "name a directory");
        }
        let sync =
            reader.one_of("ledger.sync", &[("full", Durability::Fsync), ("off", Durability::OsBuffer)]);
        Self {
            path: PathBuf::from(path),
            sync: sync.unwrap_or(Durability::Fsync),
            body_cache_bytes: reader.size("ledger.body_cache_bytes", 0..=64 * GIB),
            idempotency_keys_max: reader.size("ledger.idempotency_keys_max", 1..=1_000_000_000),
            readers: reader.size("ledger.readers", 1..=64),
            shared,
        }
    }
}

impl PostgresSettings {
    fn read(reader: &mut Reader<'_>, shared: SharedSettings) -> Self {
        // The PostgreSQL client checks it.
        let url = reader.text("postgres.url");
        let switch = [("off", false), ("on", true)];
        let tls = reader.one_of("postgres.tls", &switch);
        let roots = reader.text("postgres.tls_roots");
        if tls == Some(false) && !roots.is_empty() {
            let fix = "write postgres.tls = \"on\", or leave this empty";
            reader.problem_with_fix("postgres.tls_roots", "is for a connection over TLS", fix);
        }
        if let (Some(mode), Some(tls)) = (sslmode(url), tls) {
            check_sslmode(reader, mode, tls);
        }
        let allow = [("refuse", false), ("allow", true)];
        let allow_unsafe_server = reader.one_of("postgres.unsafe_server", &allow);
        Self {
            url: url.to_owned(),
            tls: tls.unwrap_or(false),
            tls_roots: (!roots.is_empty()).then(|| PathBuf::from(roots)),
            connections_max: reader.size("postgres.connections_max", 2..=10_000),
            connection_wait: reader.millis("postgres.connection_wait_ms", 1..=MS_MAX),
            connect_timeout: reader.millis("postgres.connect_timeout_ms", 1..=MS_MAX),
            statement_timeout: reader.millis("postgres.statement_timeout_ms", 1..=MS_MAX),
            lock_timeout: reader.millis("postgres.lock_timeout_ms", 1..=MS_MAX),
            allow_unsafe_server: allow_unsafe_server.unwrap_or(false),
            shared,
        }
    }
}

/// What the URL itself says about TLS.
fn sslmode(url: &str) -> Option<&str> {
    let (_, query) = url.split_once('?')?;
    query.split('&').filter_map(|option| option.strip_prefix("sslmode=")).next_back()
}

/// Whether connections are encrypted is decided by `postgres.tls` alone: a URL that says otherwise is no wish to be
/// passed over.
fn check_sslmode(reader: &mut Reader<'_>, mode: &str, tls: bool) {
    // Not repeated as it is: a slip may have brought anything here.
    let known = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];
    let mode = known.into_iter().find(|known| *known == mode).unwrap_or("…");
    let (what, fix) = match (mode, tls) {
        ("disable", false) | ("prefer" | "require", true) => return,
        (_, false) => (
            "and postgres.tls is \"off\"",
            "set postgres.tls = \"on\", which checks the certificate and the name, and leave sslmode out",
        ),
        ("disable", true) => ("and postgres.tls is \"on\"", "leave one of them out"),
        (_, true) => (
            "is not understood",
            "leave it out: with postgres.tls = \"on\" the certificate and the name are always checked",
        ),
    };
    reader.problem_with_fix("postgres.url", format!("says sslmode={mode}, {what}"), fix);
}

impl fmt::Debug for PostgresSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSettings").field("tls", &self.tls).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::load;

    #[test]
    fn postgres_is_chosen_with_all_of_its_settings_and_its_url_stays_hidden() {
        let text = "[ledger]\nkind = \"postgres\"\n[postgres]\nurl = \"postgres://app:open-sesame@db/t\"\n";
        let loaded = load(text).unwrap();
        let LedgerSettings::Postgres(postgres) = &loaded.settings.ledger else { panic!("{loaded:?}") };
        assert_eq!(postgres.url, "postgres://app:open-sesame@db/t");
        assert!(!postgres.allow_unsafe_server && !postgres.tls && postgres.tls_roots.is_none());
        assert!(!format!("{loaded:?}").contains("sesame"), "{loaded:?}");
    }

    #[test]
    fn what_the_url_says_of_tls_agrees_with_the_settings() {
        let said = |mode: &str, tls: &str| {
            load(&format!(
                "[postgres]\nurl = \"postgres://app:sesame@db/t?application_name=x&sslmode={mode}\"\ntls = \"{tls}\"\n"
            ))
        };
        for (mode, tls) in [("disable", "off"), ("require", "on"), ("prefer", "on")] {
            assert!(said(mode, tls).is_ok(), "{mode} {tls}");
        }
        for mode in ["allow", "prefer", "require", "verify-ca", "verify-full"] {
            let problems = said(mode, "off").unwrap_err();
            let expected = format!(
                "tidegate.toml:2: postgres.url: says sslmode={mode}, and postgres.tls is \"off\"; set postgres.tls"
            );
            assert!(problems.contains(&expected), "{problems}");
        }
        for mode in ["disable", "verify-full", "sesame"] {
            let problems = said(mode, "on").unwrap_err();
            assert!(problems.contains("postgres.url: says sslmode="), "{problems}");
            assert!(!problems.contains("sesame"), "{problems}");
        }
    }

    #[test]
    fn roots_are_for_tls() {
        let problems = load("[postgres]\ntls_roots = \"ca.pem\"\n").unwrap_err();
        let expected =
            "tidegate.toml:2: postgres.tls_roots: is for a connection over TLS; write postgres.tls = \"on\"";
        assert!(problems.contains(expected), "{problems}");
    }

    #[test]
    fn what_is_wrong_is_said_without_the_url() {
        let text =
            "[ledger]\nkind = \"postgers\"\n[postgres]\nurl = \"mysql://:open-sesame@db\"\ntls = \"maybe\"\n";
        let problems = load(text).unwrap_err();
        for part in [
            "tidegate.toml:2: ledger.kind: \"postgers\" is not known; choose \"embedded\" or \"postgres\"",
            "tidegate.toml:5: postgres.tls: \"maybe\" is not known",
        ] {
            assert!(problems.contains(part), "{part}\nnot in {problems}");
        }
        assert!(!problems.contains("sesame"), "{problems}");
    }
}

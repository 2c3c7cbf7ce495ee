use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tidegate_adapters::SystemClock;
use tidegate_adapters::embedded::{self, Embedded, OpenError};
use tidegate_domain::{BATCH_BYTES_MAX, Clock};
use tidegate_postgres::{self as postgres, Postgres, ServerClock, Tls};

use crate::config::{EmbeddedSettings, LedgerSettings, PostgresSettings, Settings};

const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The ledger of the settings.
#[derive(Debug)]
pub enum Opened {
    Embedded(Arc<Embedded>),
    Postgres(Arc<Postgres>),
}

/// Whose time counts: this machine's for a ledger of its own, the server's for one that is shared.
#[derive(Debug, Clone)]
pub enum LedgerClock {
    System(Arc<SystemClock>),
    Server(Arc<ServerClock>),
}

impl LedgerClock {
    pub fn of(settings: &Settings) -> Self {
        match &settings.ledger {
            LedgerSettings::Embedded(_) => Self::System(Arc::default()),
            LedgerSettings::Postgres(_) => Self::Server(Arc::default()),
        }
    }

    pub fn shared(&self) -> Arc<dyn Clock> {
        match self {
            Self::System(clock) => clock.clone(),
            Self::Server(clock) => clock.clone(),
        }
    }
}

pub async fn open(settings: &Settings, clock: &LedgerClock) -> anyhow::Result<Opened> {
    Ok(match &settings.ledger {
        LedgerSettings::Embedded(embedded) => {
            let clock = clock.shared();
            let options = embedded_options(embedded, settings);
            let opening = tokio::task::spawn_blocking(move || Embedded::open(options, clock));
            let opened = opening.await.context("opening the ledger panicked")?;
            Opened::Embedded(Arc::new(opened.map_err(|error| explained(error, &embedded.path))?))
        }
        LedgerSettings::Postgres(postgres) => {
            let mut options = postgres_options(postgres, settings);
            if let LedgerClock::Server(clock) = clock {
                options.clock = clock.clone();
            }
            let opened = Postgres::open(options).await;
            Opened::Postgres(Arc::new(opened.with_context(|| place_of(&postgres.url))?))
        }
    })
}

/// A refusal with what can be done about it.
pub(super) fn explained(error: OpenError, dir: &Path) -> anyhow::Error {
    match error {
        OpenError::Lost { message, .. } => anyhow::anyhow!(
            "{message}. Put back what is missing, or restore a backup of the whole directory. To go on without it: \
             tidegate accept-loss --data {}",
            dir.display()
        ),
        OpenError::Store { message, damaged: true } => anyhow::anyhow!(
            "{message}. Restore a backup of the whole directory. To go on without rows that are damaged, each of them \
             named: tidegate accept-loss --data {}",
            dir.display()
        ),
        other => other.into(),
    }
}

/// Why nothing was accepted, with what can be done about it.
fn not_accepted(error: OpenError, dir: &Path) -> anyhow::Error {
    match error {
        OpenError::Store { message, damaged: true } => anyhow::anyhow!(
            "{message}. It can't be mended by leaving something out, and nothing was changed. Restore a backup of the whole \
             directory, or read what is left with: sqlite3 {} .recover",
            dir.join("ledger.db").display()
        ),
        other => other.into(),
    }
}

/// Makes an embedded ledger startable that lacks something. Says what is missing, if anything is.
pub async fn accept_loss(settings: &Settings) -> anyhow::Result<Option<String>> {
    let LedgerSettings::Embedded(embedded) = &settings.ledger else {
        anyhow::bail!("there is nothing to accept: ledger.kind is not \"embedded\"");
    };
    let (options, clock) = (embedded_options(embedded, settings), LedgerClock::of(settings).shared());
    let accepting = tokio::task::spawn_blocking(move || embedded::accept_loss(&options, &clock));
    let accepted = accepting.await.context("opening the ledger panicked")?;
    let loss = accepted.map_err(|error| not_accepted(error, &embedded.path))?;
    Ok(loss.map(|loss| loss.to_string()))
}

/// Where the data lies, for people.
pub fn place(settings: &Settings) -> anyhow::Result<String> {
    Ok(match &settings.ledger {
        LedgerSettings::Embedded(embedded) => {
            std::path::absolute(&embedded.path)?.to_string_lossy().into_owned()
        }
        LedgerSettings::Postgres(postgres) => place_of(&postgres.url),
    })
}

/// Brings a database's schema up to date.
pub async fn migrate(settings: &Settings) -> anyhow::Result<String> {
    let LedgerSettings::Postgres(postgres) = &settings.ledger else {
        anyhow::bail!("there is nothing to migrate: ledger.kind is not \"postgres\"");
    };
    let place = place_of(&postgres.url);
    postgres::migrate(&postgres_options(postgres, settings)).await.with_context(|| place.clone())?;
    Ok(place)
}

/// What was acknowledged is safe already; a close that hangs must not keep the process.
pub async fn close(ledger: Opened) {
    let Opened::Embedded(ledger) = ledger else {
        tracing::info!("stopped");
        return;
    };
    let closing = tokio::task::spawn_blocking(move || ledger.close());
    match tokio::time::timeout(CLOSE_TIMEOUT, closing).await {
        Ok(Ok(_)) => tracing::info!("stopped"),
        Ok(Err(error)) => tracing::error!(%error, "closing the ledger panicked"),
        Err(_) => tracing::error!("the ledger did not close in time; it recovers at the next start"),
    }
}

/// A URL without who logs in, and with what.
fn place_of(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("postgres", url));
    let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}/{path}")
}

pub(super) fn embedded_options(settings: &EmbeddedSettings, all: &Settings) -> embedded::Options {
    let shared = &settings.shared;
    embedded::Options {
        dir: settings.path.clone(),
        sync: settings.sync,
        pending_max: shared.pending_max,
        pending_hard_max: shared.pending_hard_max,
        intake_max: all.intake_max,
        group_max: shared.group_max,
        body_cache_bytes: settings.body_cache_bytes,
        batch_bytes_max: BATCH_BYTES_MAX,
        idempotency_window_ms: shared.idempotency_window_ms,
        idempotency_keys_max: settings.idempotency_keys_max,
        retention_ms: shared.retention_ms,
        readers: settings.readers,
        slots_max: shared.slots_max,
        slot_retention_ms: shared.slot_retention_ms,
        queue_rules: all.queues.rules(),
        queue_rule: all.queues.otherwise.ledger_rule(),
        queue_forget_after_ms: all.queues.forget_after_ms,
    }
}

pub(super) fn postgres_options(settings: &PostgresSettings, all: &Settings) -> postgres::Options {
    let shared = &settings.shared;
    let tls = if settings.tls { Tls::On { roots: settings.tls_roots.clone() } } else { Tls::Off };
    postgres::Options {
        tls,
        connections_max: settings.connections_max,
        connection_wait: settings.connection_wait,
        connect_timeout: settings.connect_timeout,
        statement_timeout: settings.statement_timeout,
        lock_timeout: settings.lock_timeout,
        allow_unsafe_server: settings.allow_unsafe_server,
        pending_max: shared.pending_max,
        pending_hard_max: shared.pending_hard_max,
        intake_max: all.intake_max,
        idempotency_window_ms: shared.idempotency_window_ms,
        retention_ms: shared.retention_ms,
        slots_max: shared.slots_max as u64,
        slot_retention_ms: shared.slot_retention_ms,
        queue_rules: all.queues.rules().into_iter().collect(),
        queue_rule: all.queues.otherwise.ledger_rule(),
        queue_forget_after_ms: all.queues.forget_after_ms,
        ..postgres::Options::new(&settings.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_without_its_password() {
        for (url, place) in [
            ("postgres://app:se%40same@db:5432/t?sslmode=disable", "postgres://db:5432/t"),
            ("postgresql://db", "postgresql://db/"),
            ("postgres://a:b@c@db/t", "postgres://db/t"),
        ] {
            assert_eq!(place_of(url), place);
        }
    }
}

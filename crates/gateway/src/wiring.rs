//! Which adapters stand behind the ports. Architecture invariant: no file outside of this module names one.

mod channels;
mod devices;
mod policies;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tidegate_adapters::SystemClock;
use tidegate_adapters::embedded::{Embedded, Options};
use tidegate_domain::{Clock, Ledger};
use tokio::net::{TcpListener, TcpSocket};

use crate::announcement::Announcement;
use crate::config::{EmbeddedSettings, LedgerSettings, QueuesSettings, Settings};
use crate::live_policies::ReadPolicies;
use crate::server::{LedgerFailed, run};
use crate::signals;

use self::channels::channels;
pub use self::policies::policies;

/// sysexits' EX_IOERR: the disk failed under the ledger.
const IO_ERROR: i32 = 74;

const BACKLOG: u32 = 4_096;
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Binds, opens the ledger, announces itself and serves until a signal. The settings have been checked;
/// `read_policies` reads them again, for a reload.
pub async fn serve(settings: Settings, read_policies: ReadPolicies) -> anyhow::Result<ExitCode> {
    let mut stop = signals::listen()?;
    let hangups = signals::hangups()?;
    // First, because it is the cheapest thing that can fail; connections wait in the backlog meanwhile.
    let listener = bind(&settings)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let channels = channels(&settings, &clock)?;
    let LedgerSettings::Embedded(embedded) = settings.ledger.clone();
    let options = options(embedded.clone(), settings.intake_max, &settings.queues);
    let ledger = {
        let clock = clock.clone();
        let opening = tokio::task::spawn_blocking(move || Embedded::open(options, clock));
        tokio::select! {
            opened = opening => Arc::new(opened.context("opening the ledger panicked")??),
            () = stop.wait() => return Ok(ExitCode::SUCCESS),
        }
    };
    let policies = policies(&settings, clock.clone(), read_policies).await?;
    tokio::spawn(signals::reload_on(hangups, policies.clone()));
    Announcement {
        address: listener.local_addr()?,
        data: &std::path::absolute(&embedded.path)?,
        durability: ledger.durability(),
        principals: &settings.principals,
    }
    .make();
    let served =
        run(settings, listener, ledger.clone(), channels, clock, policies, async move { stop.wait().await })
            .await;
    if let Some(failed) = served.as_ref().err().and_then(|error| error.downcast_ref::<LedgerFailed>()) {
        tracing::error!(reason = failed.reason, "the ledger failed for good; exiting, to recover from disk");
        // Not even a clean close: what is on disk is what was promised.
        std::process::exit(IO_ERROR);
    }
    close(ledger).await;
    served.map(|()| ExitCode::SUCCESS)
}

/// What only the adapters can tell about settings, without connecting to anything.
pub fn check(settings: &Settings) -> anyhow::Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    channels(settings, &clock)?;
    policies::check(settings)
}

fn bind(settings: &Settings) -> anyhow::Result<TcpListener> {
    let address = settings.listen;
    let bound = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // A restart must not wait for the old connections' TIME_WAIT.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    bound().map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => anyhow::anyhow!(
            "cannot listen on {address}: another process does; stop it, or choose another address with --listen"
        ),
        _ => anyhow::anyhow!("cannot listen on {address}: {error}; choose another address with --listen"),
    })
}

fn options(settings: EmbeddedSettings, intake_max: usize, queues: &QueuesSettings) -> Options {
    Options {
        dir: settings.path,
        sync: settings.sync,
        pending_max: settings.pending_max,
        intake_max,
        group_max: settings.group_max,
        body_cache_bytes: settings.body_cache_bytes,
        idempotency_window_ms: settings.idempotency_window_ms,
        idempotency_keys_max: settings.idempotency_keys_max,
        retention_ms: settings.retention_ms,
        readers: settings.readers,
        slots_max: settings.slots_max,
        slot_retention_ms: settings.slot_retention_ms,
        queue_rules: queues.rules(),
        queue_rule: queues.otherwise.rule,
    }
}

/// What was acknowledged is safe already; a close that hangs must not keep the process.
async fn close(ledger: Arc<Embedded>) {
    let closing = tokio::task::spawn_blocking(move || ledger.close());
    match tokio::time::timeout(CLOSE_TIMEOUT, closing).await {
        Ok(Ok(_)) => tracing::info!("stopped"),
        Ok(Err(error)) => tracing::error!(%error, "closing the ledger panicked"),
        Err(_) => tracing::error!("the ledger did not close in time; it recovers at the next start"),
    }
}

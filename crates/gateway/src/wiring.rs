//! Which adapters stand behind the ports. Architecture invariant: no file outside of this module names one.

mod bus;
mod channels;
mod check;
mod devices;
mod ledger;
mod policies;
mod quotas;
mod redis;
mod transfer;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use tidegate_domain::{Clock, Ledger, Queues, Slots, Transit};
use tokio::net::{TcpListener, TcpSocket};

use crate::announcement::Announcement;
use crate::config::Settings;
use crate::limiters::Limiters;
use crate::live_policies::ReadPolicies;
use crate::open_files;
use crate::server::{Channels, LedgerFailed, run};
use crate::signals;

use self::channels::channels;
use self::ledger::{LedgerClock, Opened};

pub use self::check::{check, taken};
pub use self::ledger::{accept_loss, migrate};
pub use self::policies::policies;
pub use self::transfer::{export, import};

/// sysexits' EX_IOERR: the disk failed under the ledger.
const IO_ERROR: i32 = 74;

const BACKLOG: u32 = 4_096;

/// Binds, opens the ledger, announces itself and serves until a signal. The settings have been checked;
/// `read_policies` reads them again, for a reload.
pub async fn serve(mut settings: Settings, read_policies: ReadPolicies) -> anyhow::Result<ExitCode> {
    open_files::fit(&mut settings)?;
    let mut stop = signals::listen()?;
    let hangups = signals::hangups()?;
    // First, because it is the cheapest thing that can fail; connections wait in the backlog meanwhile.
    let listener = bind(&settings)?;
    let ledger_clock = LedgerClock::of(&settings);
    let clock = ledger_clock.shared();
    let mut channels = channels(&settings, &clock)?;
    let ledger = tokio::select! {
        opened = ledger::open(&settings, &ledger_clock) => opened?,
        () = stop.wait() => return Ok(ExitCode::SUCCESS),
    };
    channels.bus = tokio::select! {
        bus = bus::bus(&settings) => bus?,
        () = stop.wait() => {
            ledger::close(ledger).await;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let policies = policies(&settings, clock.clone(), read_policies).await?;
    tokio::spawn(signals::reload_on(hangups, policies.clone()));
    let limiters = Limiters { policies, quota_cache: quotas::quota_cache(&settings).await? };
    let parts = Parts { settings, listener, channels, clock, limiters };
    let stopped = async move { stop.wait().await };
    let served = match &ledger {
        Opened::Embedded(ledger) => parts.serve_on(ledger.clone(), stopped).await,
        Opened::Postgres(ledger) => parts.serve_on(ledger.clone(), stopped).await,
    };
    if let Some(failed) = served.as_ref().err().and_then(|error| error.downcast_ref::<LedgerFailed>()) {
        tracing::error!(reason = failed.reason, "the ledger failed for good; exiting, to recover from disk");
        // Not even a clean close: what is on disk is what was promised.
        std::process::exit(IO_ERROR);
    }
    ledger::close(ledger).await;
    served.map(|()| ExitCode::SUCCESS)
}

/// What a gateway consists of, beside its ledger.
struct Parts {
    settings: Settings,
    listener: TcpListener,
    channels: Channels,
    clock: Arc<dyn Clock>,
    limiters: Limiters,
}

impl Parts {
    async fn serve_on(
        self,
        ledger: Arc<impl Ledger + Slots + Queues + Transit>,
        stopped: impl Future<Output = ()> + Send,
    ) -> anyhow::Result<()> {
        let Self { settings, listener, channels, clock, limiters } = self;
        Announcement {
            address: listener.local_addr()?,
            data: &ledger::place(&settings)?,
            durability: ledger.durability(),
            principals: &settings.principals,
            role: settings.role,
        }
        .make();
        run(settings, listener, ledger, channels, clock, limiters, stopped).await
    }
}

fn bind(settings: &Settings) -> anyhow::Result<TcpListener> {
    let address = settings.listen;
    let bound = socket(address).and_then(|socket| socket.listen(BACKLOG));
    bound.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => anyhow::anyhow!(
            "cannot listen on {address}: another process does; stop it, or choose another address with --listen"
        ),
        _ => anyhow::anyhow!("cannot listen on {address}: {error}; choose another address with --listen"),
    })
}

/// Bound, and not listening yet.
fn socket(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart must not wait for the old connections' TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

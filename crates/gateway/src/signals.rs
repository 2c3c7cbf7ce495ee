use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::stop::{Stop, StopSignal};

const INTERRUPTED: i32 = 130;

/// SIGTERM or SIGINT stops; a second one ends the process at once, whatever it is doing.
pub fn listen() -> anyhow::Result<Stop> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let (stopping, stop) = StopSignal::new();
    tokio::spawn(async move {
        let name = either(&mut terminate, &mut interrupt).await;
        tracing::info!(signal = name, "stopping; a second signal ends the process at once");
        stopping.stop();
        let name = either(&mut terminate, &mut interrupt).await;
        tracing::warn!(signal = name, "ended by a second signal");
        std::process::exit(INTERRUPTED);
    });
    Ok(stop)
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}

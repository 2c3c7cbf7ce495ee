use std::sync::Arc;

use anyhow::Context as _;
use tidegate_edge::Audit;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::live_policies::LivePolicies;
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

/// SIGHUP. From this call on it no longer ends the process.
pub fn hangups() -> anyhow::Result<Signal> {
    signal(SignalKind::hangup()).context("cannot listen for SIGHUP")
}

/// Reads the policies again at each SIGHUP. What is wrong with them is logged, and the old ones stay.
pub async fn reload_on(mut hangups: Signal, policies: Arc<LivePolicies>) {
    while hangups.recv().await.is_some() {
        match policies.reload().await {
            Ok(count) => {
                Audit::of_signal("SIGHUP").record("policies reloaded", format_args!("{count} in force"))
            }
            Err(error) => tracing::error!(%error, "policies not reloaded: those of before stay in force"),
        }
    }
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}

use std::sync::Arc;

use tidegate_domain::{Health, LedgerError};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::codes::duration;
use crate::open::Core;

/// How much one statement of a sweep takes on.
const SLICE: i32 = 1_000;
/// Slices of old keys that one sweep forgets.
const KEY_SLICES: usize = 20;

/// Sweeps now and then, for ever, and knows by that how the ledger is doing.
pub async fn run(core: Arc<Core>, health: watch::Sender<Health>) {
    let mut ticks = interval(core.options.sweep_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = match core.sweep().await {
            Ok(()) => Health::Ready,
            Err(error) => Health::ReadOnly(error.to_string()),
        };
        health.send_if_modified(|before| {
            let changed = *before != now;
            if changed {
                tracing::info!(?now, "the ledger on PostgreSQL");
                *before = now;
            }
            changed
        });
    }
}

impl Core {
    pub async fn sweep(&self) -> Result<(), LedgerError> {
        let mut woken = false;
        while self.slice("SELECT end_leases($1)").await? > 0 {
            woken = true;
        }
        // What others hold just now is left to them.
        let mut before = i32::MAX;
        loop {
            let found = self.slice("SELECT expire_all($1)").await?;
            woken |= found > 0;
            if found < SLICE && found >= before || found == 0 {
                break;
            }
            before = found;
        }
        if woken {
            self.wakes.wake_all();
        }
        let window_ms = duration(self.options.idempotency_window_ms);
        for _ in 0..KEY_SLICES {
            let rows = self.write("SELECT forget_keys($1, $2)", &[&window_ms, &SLICE]).await?;
            if rows.first().is_none_or(|row| row.get::<_, i32>(0) < SLICE) {
                break;
            }
        }
        Ok(())
    }

    async fn slice(&self, sql: &str) -> Result<i32, LedgerError> {
        let rows = self.write(sql, &[&SLICE]).await?;
        Ok(rows.first().map_or(0, |row| row.get(0)))
    }
}

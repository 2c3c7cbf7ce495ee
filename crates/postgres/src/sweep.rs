use std::sync::Arc;

use tidegate_domain::{Health, LedgerError};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::codes::{bounded, duration};
use crate::open::Core;

/// How much one statement of a sweep takes on.
const SLICE: i32 = 1_000;
/// Slices of old keys, and of old slots, that one sweep forgets.
const FORGOTTEN_SLICES: usize = 20;

/// Sweeps now and then, for ever, and knows by that how the ledger is doing.
pub async fn run(core: Arc<Core>, health: watch::Sender<Health>) {
    // Not at once: whoever opens a ledger need not meet a sweep over its first calls.
    let mut ticks = interval_at(Instant::now() + core.options.sweep_every, core.options.sweep_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let swept = match core.ask_the_time().await {
            Ok(()) => core.sweep().await,
            Err(error) => Err(error),
        };
        let now = match swept {
            Ok(()) => Health::Ready,
            Err(LedgerError::NoSpace(why)) => Health::ReadOnly(why),
            Err(error) => Health::Away(error.to_string()),
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
        self.forget("SELECT forget_keys($1, $2)", window_ms).await?;
        self.forget("SELECT forget_slots($1, $2)", duration(self.options.slot_retention_ms)).await?;
        self.turn_partitions().await
    }

    /// Makes new partitions, and drops one that is old enough.
    pub async fn turn_partitions(&self) -> Result<(), LedgerError> {
        let messages = bounded(self.options.partition_messages.max(1));
        self.write("SELECT ensure_partitions($1)", &[&messages]).await?;
        let retention_ms = duration(self.options.retention_ms);
        self.forget("SELECT forget_kept($1, $2)", retention_ms).await?;
        let rows = self.write("SELECT old_partition($1)", &[&retention_ms]).await?;
        if let Some(first) = rows.first().and_then(|row| row.get::<_, Option<i64>>(0)) {
            // Others were in the way: there is no hurry.
            match self.write("SELECT drop_partition($1, $2)", &[&first, &retention_ms]).await {
                Ok(_) => tracing::info!(first, "a partition of old messages is dropped"),
                Err(error) => tracing::debug!(%error, first, "a partition of old messages stays for now"),
            }
        }
        Ok(())
    }

    /// A bounded number of slices of what is older than that.
    async fn forget(&self, sql: &str, age_ms: i64) -> Result<(), LedgerError> {
        for _ in 0..FORGOTTEN_SLICES {
            let rows = self.write(sql, &[&age_ms, &SLICE]).await?;
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

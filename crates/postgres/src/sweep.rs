use std::sync::Arc;

use tidegate_domain::{Health, LedgerError};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_postgres::types::ToSql;

use crate::codes::duration;
use crate::open::Core;

/// How much one statement of a sweep takes on, and how many of one kind a sweep is made of.
const SLICE: i32 = 1_000;
const SLICES: usize = 100;
/// Slices of old keys, of old slots and of what was kept of old messages, that one sweep forgets.
const FORGOTTEN_SLICES: usize = 20;
/// Queues that one statement looks at, to forget those that are idle, and how often it looks at each, at the least.
const QUEUES_SLICE: i32 = 200;
const LOOK_EVERY_MS_MAX: i64 = 60_000;

/// What a sweep is made of. None of them waits for another to succeed.
#[derive(Debug, Clone, Copy)]
enum Step {
    EndLeases,
    Expire,
    ForgetKeys,
    ForgetSlots,
    ForgetQuotas,
    ForgetQueues,
    MakePartitions,
    ForgetKept,
    Retire,
    Summarize,
}

const STEPS: [Step; 10] = [
    Step::EndLeases,
    Step::Expire,
    Step::ForgetKeys,
    Step::ForgetSlots,
    Step::ForgetQuotas,
    Step::ForgetQueues,
    Step::MakePartitions,
    Step::ForgetKept,
    Step::Retire,
    Step::Summarize,
];

/// Sweeps now and then, for ever, and watches how the server is doing.
pub async fn run(core: Arc<Core>, health: watch::Sender<Health>) {
    // Not at once: whoever opens a ledger need not meet a sweep over its first calls.
    let mut ticks = interval_at(Instant::now() + core.options.sweep_every, core.options.sweep_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut trouble = None;
    loop {
        ticks.tick().await;
        let now = match core.look_at_server().await {
            // A sweep that fails is a nuisance; the server does what it is asked for.
            Ok(()) => match core.sweep().await {
                Err(LedgerError::NoSpace(why)) => Health::ReadOnly(why),
                swept => {
                    report(&mut trouble, swept.err());
                    Health::Ready
                }
            },
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

/// Once, not with every sweep.
fn report(before: &mut Option<LedgerError>, now: Option<LedgerError>) {
    if *before != now {
        match &now {
            Some(error @ LedgerError::Defect(_)) => {
                tracing::error!(%error, "sweeping the ledger on PostgreSQL fails in part")
            }
            Some(error) => tracing::warn!(%error, "sweeping the ledger on PostgreSQL fails in part"),
            None => tracing::info!("sweeping the ledger on PostgreSQL succeeds again"),
        }
        *before = now;
    }
}

impl Core {
    /// Whether it answers, and can be written to: a standby can't.
    async fn look_at_server(&self) -> Result<(), LedgerError> {
        self.ask_the_time().await?;
        let rows = self.read("SELECT current_setting('transaction_read_only')", &[]).await?;
        if rows.first().is_some_and(|row| row.get::<_, &str>(0) == "on") {
            return Err(LedgerError::Unavailable("the server is read-only".to_owned()));
        }
        Ok(())
    }

    /// All of it, as far as it goes: the error is the first, or what is worse.
    pub async fn sweep(&self) -> Result<(), LedgerError> {
        let mut swept = Ok(());
        for step in STEPS {
            if let Err(error) = self.step(step).await {
                if swept.is_ok() || matches!(error, LedgerError::NoSpace(_)) {
                    swept = Err(error);
                }
                // With the server away, the others would only take their time to fail as well.
                if self.ask_the_time().await.is_err() {
                    break;
                }
            }
        }
        swept
    }

    async fn step(&self, step: Step) -> Result<(), LedgerError> {
        match step {
            Step::EndLeases => {
                let (queues, attempts_max) = self.options.attempts_maxima();
                self.release_slices("SELECT end_leases($1, $2, $3)", &[&SLICE, &queues, &attempts_max]).await
            }
            Step::Expire => self.release_slices("SELECT expire_all($1)", &[&SLICE]).await,
            Step::ForgetKeys => {
                let window_ms = duration(self.options.idempotency_window_ms);
                self.forget("SELECT forget_keys($1, $2)", window_ms).await
            }
            Step::ForgetSlots => {
                let retention_ms = duration(self.options.slot_retention_ms);
                self.forget("SELECT forget_slots($1, $2)", retention_ms).await
            }
            Step::ForgetQuotas => self.forget("SELECT forget_quotas($1, $2)", 0).await,
            Step::ForgetQueues => self.forget_queues().await,
            Step::MakePartitions => self.make_partitions().await,
            Step::ForgetKept => {
                let retention_ms = duration(self.options.retention_ms);
                self.forget("SELECT forget_kept($1, $2)", retention_ms).await
            }
            Step::Retire => self.retire().await,
            Step::Summarize => self.summarize().await,
        }
    }

    /// A gateway's settings decide about the queues that it looks at; give all of them the same.
    async fn forget_queues(&self) -> Result<(), LedgerError> {
        let after_ms = duration(self.options.queue_forget_after_ms);
        let every_ms = (after_ms / 8).min(LOOK_EVERY_MS_MAX);
        let named: Vec<_> = self.options.queue_rules.iter().map(|(name, _)| name.as_str()).collect();
        for _ in 0..FORGOTTEN_SLICES {
            let sql = "SELECT forget_queues($1, $2, $3, $4)";
            let rows = self.write(sql, &[&after_ms, &every_ms, &named, &QUEUES_SLICE]).await?;
            if rows.first().is_none_or(|row| row.get::<_, i32>(0) < QUEUES_SLICE) {
                break;
            }
        }
        Ok(())
    }

    /// For the messages that come next.
    pub async fn make_partitions(&self) -> Result<(), LedgerError> {
        self.write("SELECT ensure_partitions($1)", &[&self.options.partition_size()]).await.map(drop)
    }

    /// Until there is nothing left to end, or others hold what there is. Somebody may wait for what comes next.
    async fn release_slices(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<(), LedgerError> {
        for _ in 0..SLICES {
            let rows = self.write(sql, params).await?;
            if rows.first().is_none_or(|row| row.get::<_, i32>(0) == 0) {
                break;
            }
            self.wakes.wake_all();
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
}

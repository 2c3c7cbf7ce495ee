use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_adapters::SystemClock;
use tidegate_adapters::embedded::{Embedded, Options};
use tidegate_domain::{
    Admission, Admitted, ClaimRequest, Due, Lane, Ledger, OnLimit, Outcome, QueueName, Recipient, Settled,
    Settlement,
};
use tokio::runtime::Runtime;

use super::memory::resident_bytes;
use super::yardsticks::{BareLog, QueueTable};
use super::{Scale, median};
use crate::figure::Figure;

const BATCH: usize = 256;
const BODY_BYTES: usize = 200;

/// The whole cycle against the least that is durable and against a plain table.
pub fn cycle(dir: &Path, scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let runtime = runtime()?;
    let body = Bytes::from(vec![b'x'; BODY_BYTES]);
    let mut ledger = Bench::open(&dir.join("cycle"))?;
    let mut log = BareLog::create(&dir.join("bare.log"))?;
    let mut table = QueueTable::create(&dir.join("table.db"))?;
    let (mut ours, mut logs, mut tables) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..scale.rounds {
        ours.push(rate(scale, || runtime.block_on(ledger.cycle(&body)))?);
        logs.push(rate(scale, || log.cycle(BATCH, &body))?);
        tables.push(rate(scale, || table.cycle(BATCH, &body))?);
    }
    let (ours, log, table) = (median(ours), median(logs), median(tables));
    println!(
        "cycle, batches of {BATCH}, {BODY_BYTES}-byte bodies: ledger {ours:.0}/s, bare log {log:.0}/s, table {table:.0}/s"
    );
    Ok(vec![
        Figure::ratio("cycle_vs_bare_log", ours / log, 0.4),
        Figure::ratio("cycle_vs_table", ours / table, 2.0),
    ])
}

/// The cycle with many messages waiting, a restart, and what a waiting message costs in memory.
pub fn waiting(dir: &Path, scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let runtime = runtime()?;
    let body = Bytes::from(vec![b'x'; BODY_BYTES]);
    let full_dir = dir.join("full");
    let before = resident_bytes()?;
    let mut full = Bench::open(&full_dir)?;
    let started = Instant::now();
    runtime.block_on(full.load(scale.waiting, &body))?;
    let loaded = started.elapsed();
    let grown = resident_bytes()?.saturating_sub(before);
    #[expect(clippy::cast_precision_loss, reason = "a count for people")]
    let (waiting, per_message) = (scale.waiting as f64, grown as f64 / scale.waiting as f64);
    println!(
        "{} waiting: loaded at {:.0}/s, {per_message:.0} bytes resident each",
        scale.waiting,
        waiting / loaded.as_secs_f64()
    );

    let mut empty = Bench::open(&dir.join("empty"))?;
    let (mut fulls, mut empties) = (Vec::new(), Vec::new());
    for _ in 0..scale.rounds {
        empties.push(rate(scale, || runtime.block_on(empty.cycle(&body)))?);
        fulls.push(rate(scale, || runtime.block_on(full.cycle(&body)))?);
    }
    let (with, without) = (median(fulls), median(empties));
    println!("cycle with {} waiting {with:.0}/s, empty {without:.0}/s", scale.waiting);

    drop(full);
    let started = Instant::now();
    let full = Bench::open(&full_dir)?;
    let restart = started.elapsed();
    let counts = runtime.block_on(full.ledger.counts())?;
    anyhow::ensure!(counts.pending == scale.waiting as u64, "{} pending after the restart", counts.pending);
    println!("restart with {} waiting: ready after {:.2} s", scale.waiting, restart.as_secs_f64());
    Ok(vec![
        Figure::ratio("cycle_with_waiting_vs_empty", with / without, 0.8),
        Figure::head_room("restart_head_room", restart.as_secs_f64(), 5.0),
        Figure::head_room("memory_head_room", per_message, 600.0),
    ])
}

fn runtime() -> anyhow::Result<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_time().build()?)
}

/// Messages per second over one round.
fn rate(scale: Scale, mut batch: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let started = Instant::now();
    for _ in 0..scale.batches_per_round {
        batch()?;
    }
    #[expect(clippy::cast_precision_loss, reason = "a count for people")]
    let messages = (scale.batches_per_round * BATCH) as f64;
    Ok(messages / started.elapsed().as_secs_f64())
}

struct Bench {
    ledger: Embedded,
    queue: QueueName,
    next: u64,
}

impl Bench {
    fn open(dir: &Path) -> anyhow::Result<Self> {
        let ledger = Embedded::open(Options::new(dir), Arc::new(SystemClock::new()))?;
        Ok(Self { ledger, queue: QueueName::new("bench")?, next: 0 })
    }

    async fn load(&mut self, count: usize, body: &Bytes) -> anyhow::Result<()> {
        let mut left = count;
        let mut told = Instant::now();
        while left > 0 {
            let batch = left.min(2_048);
            self.admit(batch, body).await?;
            left -= batch;
            if told.elapsed() > Duration::from_secs(5) {
                told = Instant::now();
                println!("  loaded {} of {count}", count - left);
            }
        }
        Ok(())
    }

    async fn cycle(&mut self, body: &Bytes) -> anyhow::Result<()> {
        self.admit(BATCH, body).await?;
        let request = ClaimRequest { queue: self.queue.clone(), max: BATCH, lease_ms: 60_000, wait_ms: 0 };
        let claims = self.ledger.claim(request).await?;
        anyhow::ensure!(claims.len() == BATCH, "claimed {} instead of {BATCH}", claims.len());
        let settle = |claim: tidegate_domain::Claim| {
            anyhow::ensure!(
                claim.body.is_some_and(|stored| stored == *body),
                "another body than was admitted"
            );
            let (id, token) = (claim.id, claim.token);
            Ok(Settlement { id, token, outcome: Outcome::Delivered, latency_ms: 1 })
        };
        let settled = self.ledger.settle(claims.into_iter().map(settle).collect::<Result<_, _>>()?).await?;
        anyhow::ensure!(settled.iter().all(|settled| *settled == Settled::Done), "a settlement was lost");
        Ok(())
    }

    async fn admit(&mut self, count: usize, body: &Bytes) -> anyhow::Result<()> {
        let first = self.next;
        self.next += count as u64;
        let admission = |number: u64| {
            Ok(Admission {
                queue: self.queue.clone(),
                recipient: Some(Recipient::new(&format!("recipient {number}"))?),
                lane: Lane::Normal,
                due: Due::Now,
                body: body.clone(),
                charge: None,
                on_limit: OnLimit::Deny,
                idempotency: None,
                expires: None,
                headers: tidegate_domain::Headers::default(),
                ack_required: false,
            })
        };
        let batch: anyhow::Result<Vec<_>> = (first..self.next).map(admission).collect();
        let admitted = self.ledger.admit(batch?).await?;
        let all = admitted.iter().all(|admitted| matches!(admitted, Admitted::Admitted { .. }));
        anyhow::ensure!(all, "an admission was refused");
        Ok(())
    }
}

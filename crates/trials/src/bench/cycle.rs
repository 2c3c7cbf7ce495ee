//! The cycle that every ledger bench turns: admit, claim, settle, a batch at a time.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_adapters::SystemClock;
use tidegate_adapters::embedded::{Embedded, Options};
use tidegate_domain::{
    Admission, Admitted, Claim, ClaimRequest, Ledger, Outcome, QueueName, Recipient, Settled, Settlement,
};
use tokio::runtime::Runtime;

use super::Scale;

pub const BATCH: usize = 256;
pub const BODY_BYTES: usize = 200;

pub fn body() -> Bytes {
    Bytes::from(vec![b'x'; BODY_BYTES])
}

pub fn runtime() -> anyhow::Result<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_time().build()?)
}

/// Messages per second over one round.
pub fn rate(scale: Scale, mut batch: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let started = Instant::now();
    for _ in 0..scale.batches_per_round {
        batch()?;
    }
    #[expect(clippy::cast_precision_loss, reason = "a count for people")]
    let messages = (scale.batches_per_round * BATCH) as f64;
    Ok(messages / started.elapsed().as_secs_f64())
}

/// An embedded ledger with one queue under load.
pub struct Subject {
    pub ledger: Embedded,
    queue: QueueName,
    next: u64,
    /// Messages go to so many recipients in turn.
    recipients: u64,
}

impl Subject {
    /// Every message has a recipient of its own.
    pub fn open(dir: &Path) -> anyhow::Result<Self> {
        Self::with_recipients(dir, u64::MAX)
    }

    pub fn with_recipients(dir: &Path, recipients: u64) -> anyhow::Result<Self> {
        let ledger = Embedded::open(Options::new(dir), Arc::new(SystemClock::new()))?;
        Ok(Self { ledger, queue: QueueName::new("bench")?, next: 0, recipients })
    }

    pub async fn load(&mut self, count: usize, body: &Bytes) -> anyhow::Result<()> {
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

    /// A recipient whose head is held for an hour, with so many behind it.
    pub async fn block(&mut self, behind: usize, body: &Bytes) -> anyhow::Result<()> {
        let mut left = behind + 1;
        while left > 0 {
            let batch = left.min(2_048);
            let blocked = Recipient::new("the blocked one")?;
            self.admit_to(batch, body, |_| Ok(blocked.clone())).await?;
            left -= batch;
        }
        let request = ClaimRequest { queue: self.queue.clone(), max: 1, lease_ms: 3_600_000, wait_ms: 0 };
        anyhow::ensure!(self.ledger.claim(request).await?.len() == 1, "nobody to block");
        Ok(())
    }

    pub async fn cycle(&mut self, body: &Bytes) -> anyhow::Result<()> {
        self.admit(BATCH, body).await?;
        let request = ClaimRequest { queue: self.queue.clone(), max: BATCH, lease_ms: 60_000, wait_ms: 0 };
        let claims = self.ledger.claim(request).await?;
        anyhow::ensure!(claims.len() == BATCH, "claimed {} instead of {BATCH}", claims.len());
        let settle = |claim: Claim| {
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
        let recipients = self.recipients;
        self.admit_to(count, body, |number| {
            Ok(Recipient::new(&format!("recipient {}", number % recipients))?)
        })
        .await
    }

    async fn admit_to(
        &mut self,
        count: usize,
        body: &Bytes,
        recipient: impl Fn(u64) -> anyhow::Result<Recipient>,
    ) -> anyhow::Result<()> {
        let first = self.next;
        self.next += count as u64;
        let admission = |number: u64| {
            let mut admission = Admission::new(self.queue.clone(), body.clone());
            admission.recipient = Some(recipient(number)?);
            Ok(admission)
        };
        let batch: anyhow::Result<Vec<_>> = (first..self.next).map(admission).collect();
        let admitted = self.ledger.admit(batch?).await?;
        let all = admitted.iter().all(|admitted| matches!(admitted, Admitted::Admitted { .. }));
        anyhow::ensure!(all, "an admission was refused");
        Ok(())
    }
}

use std::time::Duration;

use async_trait::async_trait;
use tidegate_domain::{
    Acked, Cancelled, Claim, Extension, Filter, LedgerError, Listing, MessageId, Page, PickUp, QueueCounts,
    QueueName, Queues, Requeue, Requeued, Settled, Status,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::Postgres;
use crate::claims::{Ask, Taking};
use crate::hand::Found;

/// Messages that one statement of a purge takes back.
const PURGE_SLICE: i32 = 1_000;
/// Longer than anybody waits, and short enough to be added to a point in time.
const WAIT_MAX: Duration = Duration::from_secs(86_400);

#[async_trait]
impl Queues for Postgres {
    async fn pop(&self, queue: QueueName, max: usize, wait_ms: u64) -> Result<Vec<Claim>, LedgerError> {
        self.take(queue, Taking::ForGood, max, wait_ms).await
    }

    async fn pick_up(&self, request: PickUp) -> Result<Vec<Claim>, LedgerError> {
        self.pick_up_now(request).await
    }

    async fn stirred(&self, queue: QueueName, seen: u64, wait_ms: u64) -> Result<u64, LedgerError> {
        Ok(self.core.wakes.stirs.changed(queue, seen, wait_ms).await)
    }

    async fn extend(&self, batch: Vec<Extension>) -> Result<Vec<Settled>, LedgerError> {
        self.extensions.call(batch).await
    }

    async fn ack(&self, ids: Vec<MessageId>) -> Result<Vec<Acked>, LedgerError> {
        let found = self.acks.call(ids).await?;
        let acked = found.into_iter().map(|found| match found {
            Found::Done => Acked::Acked,
            Found::Ended(Status::Delivered) => Acked::Already,
            Found::Unknown => Acked::Unknown,
            _ => Acked::NotAwaited,
        });
        Ok(acked.collect())
    }

    async fn cancel(&self, ids: Vec<MessageId>) -> Result<Vec<Cancelled>, LedgerError> {
        let found = self.cancels.call(ids).await?;
        let cancelled = found.into_iter().map(|found| match found {
            Found::Done => Cancelled::Cancelled,
            Found::Ended(_) => Cancelled::Ended,
            Found::Sent => Cancelled::Sent,
            Found::Unknown => Cancelled::Unknown,
            _ => Cancelled::UnderWay,
        });
        Ok(cancelled.collect())
    }

    async fn list(&self, filter: Filter, page: Page) -> Result<Listing, LedgerError> {
        self.core.list(filter, page).await
    }

    async fn requeue(&self, batch: Vec<Requeue>) -> Result<Vec<Requeued>, LedgerError> {
        self.core.requeue(batch).await
    }

    async fn delete_dead(&self, ids: Vec<MessageId>) -> Result<Vec<bool>, LedgerError> {
        self.core.delete_dead(ids).await
    }

    async fn purge(&self, queue: QueueName) -> Result<u64, LedgerError> {
        // What comes meanwhile is not meant.
        let rows = self.core.read("SELECT last_value FROM message_seq", &[]).await?;
        let last_place: i64 = rows.first().map_or(0, |row| row.get(0));
        let mut deleted = 0;
        loop {
            let sql = "SELECT deleted, more FROM purge($1, $2, $3)";
            let rows = self.core.write(sql, &[&queue.as_str(), &last_place, &PURGE_SLICE]).await?;
            let Some(row) = rows.first() else { break };
            deleted += u64::from(row.get::<_, i32>(0).unsigned_abs());
            if !row.get::<_, bool>(1) {
                break;
            }
        }
        // Whoever stood behind them steps forward.
        self.core.wakes.wake(&queue);
        Ok(deleted)
    }

    async fn pause(&self, queue: QueueName, paused: bool) -> Result<bool, LedgerError> {
        let configured = self.core.options.queue_rules.iter().any(|(name, _)| *name == queue);
        let sql = "SELECT pause($1, $2, $3)";
        let rows = self.core.write(sql, &[&queue.as_str(), &paused, &configured]).await?;
        self.core.wakes.wake(&queue);
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }

    async fn queue_counts(&self) -> Result<Vec<QueueCounts>, LedgerError> {
        self.core.queue_counts().await
    }
}

impl Postgres {
    pub(crate) async fn take(
        &self,
        queue: QueueName,
        taking: Taking,
        max: usize,
        wait_ms: u64,
    ) -> Result<Vec<Claim>, LedgerError> {
        let deadline = Instant::now() + Duration::from_millis(wait_ms).min(WAIT_MAX);
        let (answer, answered) = oneshot::channel();
        self.core.wakes.ask(&self.core, &queue, Ask { taking, max, deadline, answer })?;
        answered.await.map_err(|_| LedgerError::Unavailable("the ledger is closed".to_owned()))?
    }
}

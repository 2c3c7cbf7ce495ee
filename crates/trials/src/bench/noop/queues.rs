use async_trait::async_trait;
use bytes::Bytes;
use tidegate_domain::{
    Acked, Cancelled, Claim, Extension, Filter, Headers, Lane, LedgerError, Listing, MessageId, Page, PickUp,
    QueueCounts, QueueName, Queues, Requeue, Requeued, Settled,
};

use super::NoLedger;

/// As long as the messages of the other benches.
const TEXT: [u8; 200] = [b'x'; 200];

#[async_trait]
impl Queues for NoLedger {
    /// There is always one more.
    async fn pop(&self, queue: QueueName, max: usize, _: u64) -> Result<Vec<Claim>, LedgerError> {
        let at = self.clock.now();
        let claim = |_| Claim {
            id: MessageId::new(at, 1, 1),
            queue: queue.clone(),
            recipient: None,
            lane: Lane::Normal,
            user: None,
            admitted_at: at,
            attempt: 1,
            failures: 0,
            ack_attempts: 0,
            ack_required: false,
            headers: Headers::default(),
            token: 1,
            lease_until: at,
            body: Some(Bytes::from_static(&TEXT)),
        };
        Ok((0..max).map(claim).collect())
    }

    async fn pick_up(&self, _: PickUp) -> Result<Vec<Claim>, LedgerError> {
        Ok(Vec::new())
    }

    async fn stirred(&self, _: QueueName, seen: u64, wait_ms: u64) -> Result<u64, LedgerError> {
        tokio::time::sleep(std::time::Duration::from_millis(wait_ms)).await;
        Ok(seen)
    }

    async fn extend(&self, batch: Vec<Extension>) -> Result<Vec<Settled>, LedgerError> {
        Ok(vec![Settled::LostLease; batch.len()])
    }

    async fn ack(&self, ids: Vec<MessageId>) -> Result<Vec<Acked>, LedgerError> {
        Ok(vec![Acked::Unknown; ids.len()])
    }

    async fn cancel(&self, ids: Vec<MessageId>) -> Result<Vec<Cancelled>, LedgerError> {
        Ok(vec![Cancelled::Unknown; ids.len()])
    }

    async fn list(&self, _: Filter, _: Page) -> Result<Listing, LedgerError> {
        Ok(Listing::default())
    }

    async fn requeue(&self, batch: Vec<Requeue>) -> Result<Vec<Requeued>, LedgerError> {
        Ok(vec![Requeued::NotDead; batch.len()])
    }

    async fn delete_dead(&self, ids: Vec<MessageId>) -> Result<Vec<bool>, LedgerError> {
        Ok(vec![false; ids.len()])
    }

    async fn purge(&self, _: QueueName) -> Result<u64, LedgerError> {
        Ok(0)
    }

    async fn pause(&self, _: QueueName, _: bool) -> Result<bool, LedgerError> {
        Ok(false)
    }

    async fn queue_counts(&self) -> Result<Vec<QueueCounts>, LedgerError> {
        Ok(Vec::new())
    }
}

use std::sync::atomic::Ordering;

use async_trait::async_trait;
use tidegate_domain::*;

use super::FaultyLedger;

#[async_trait]
impl Queues for FaultyLedger {
    async fn pop(&self, queue: QueueName, max: usize, wait_ms: u64) -> Result<Vec<Claim>, LedgerError> {
        self.ledger.pop(queue, max, wait_ms).await
    }

    async fn pick_up(&self, request: PickUp) -> Result<Vec<Claim>, LedgerError> {
        self.last_pick_up.send_modify(|(before, recipients)| {
            *before += 1;
            recipients.clone_from(&request.recipients);
        });
        self.pick_ups.acquire().await.unwrap().forget();
        self.sender_fault()?;
        self.ledger.pick_up(request).await
    }

    async fn stirred(&self, queue: QueueName, seen: u64, wait_ms: u64) -> Result<u64, LedgerError> {
        self.ledger.stirred(queue, seen, wait_ms).await
    }

    async fn extend(&self, batch: Vec<Extension>) -> Result<Vec<Settled>, LedgerError> {
        let extended = self.ledger.extend(batch).await;
        self.extensions.fetch_add(1, Ordering::SeqCst);
        extended
    }

    async fn ack(&self, ids: Vec<MessageId>) -> Result<Vec<Acked>, LedgerError> {
        self.ledger.ack(ids).await
    }

    async fn cancel(&self, ids: Vec<MessageId>) -> Result<Vec<Cancelled>, LedgerError> {
        self.ledger.cancel(ids).await
    }

    async fn list(&self, filter: Filter, page: Page) -> Result<Listing, LedgerError> {
        let examined_max = self.examined_max.load(Ordering::SeqCst);
        if examined_max == 0 {
            return self.ledger.list(filter, page).await;
        }
        let all = Filter { queue: filter.queue, ..Filter::default() };
        let mut listing = self.ledger.list(all, Page { max: examined_max.min(page.max), ..page }).await?;
        listing.messages.retain(|record| filter.status.is_none_or(|status| record.status == status));
        Ok(listing)
    }

    async fn requeue(&self, batch: Vec<Requeue>) -> Result<Vec<Requeued>, LedgerError> {
        self.ledger.requeue(batch).await
    }

    async fn delete_dead(&self, ids: Vec<MessageId>) -> Result<Vec<bool>, LedgerError> {
        self.ledger.delete_dead(ids).await
    }

    async fn purge(&self, queue: QueueName) -> Result<u64, LedgerError> {
        self.ledger.purge(queue).await
    }

    async fn pause(&self, queue: QueueName, paused: bool) -> Result<bool, LedgerError> {
        self.ledger.pause(queue, paused).await
    }

    async fn queue_counts(&self) -> Result<Vec<QueueCounts>, LedgerError> {
        self.ledger.queue_counts().await
    }
}

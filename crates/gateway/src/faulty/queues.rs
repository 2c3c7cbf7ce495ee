use async_trait::async_trait;
use tidegate_domain::*;

use super::FaultyLedger;

/// What is asked of queues is proven on the real ledger; here they are away.
#[async_trait]
impl Queues for FaultyLedger {
    async fn pop(&self, _: QueueName, _: usize, _: u64) -> Result<Vec<Claim>, LedgerError> {
        away()
    }

    async fn extend(&self, _: Vec<Extension>) -> Result<Vec<Settled>, LedgerError> {
        away()
    }

    async fn ack(&self, _: Vec<MessageId>) -> Result<Vec<Acked>, LedgerError> {
        away()
    }

    async fn cancel(&self, _: Vec<MessageId>) -> Result<Vec<Cancelled>, LedgerError> {
        away()
    }

    async fn list(&self, _: Filter, _: Page) -> Result<Listing, LedgerError> {
        away()
    }

    async fn requeue(&self, _: Vec<Requeue>) -> Result<Vec<Requeued>, LedgerError> {
        away()
    }

    async fn delete_dead(&self, _: Vec<MessageId>) -> Result<Vec<bool>, LedgerError> {
        away()
    }

    async fn purge(&self, _: QueueName) -> Result<u64, LedgerError> {
        away()
    }

    async fn pause(&self, _: QueueName, _: bool) -> Result<bool, LedgerError> {
        away()
    }

    async fn queue_counts(&self) -> Result<Vec<QueueCounts>, LedgerError> {
        Ok(Vec::new())
    }
}

fn away<T>() -> Result<T, LedgerError> {
    Err(LedgerError::Unavailable("planted".to_owned()))
}

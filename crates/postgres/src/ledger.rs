use async_trait::async_trait;
use tidegate_domain::limits::{Quota, QuotaRule};
use tidegate_domain::{
    Admission, Admitted, Advanced, Claim, ClaimRequest, Counts, Durability, Health, Ledger, LedgerError,
    MessageId, MessageRecord, Settled, Settlement, UserId,
};

use crate::Postgres;
use crate::claims::Taking;
use crate::settle::Step;

#[async_trait]
impl Ledger for Postgres {
    async fn admit(&self, batch: Vec<Admission>) -> Result<Vec<Admitted>, LedgerError> {
        self.admissions.call(batch).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claim>, LedgerError> {
        let taking = Taking::Lease { lease_ms: request.lease_ms };
        self.take(request.queue, taking, request.max, request.wait_ms).await
    }

    async fn settle(&self, batch: Vec<Settlement>) -> Result<Vec<Settled>, LedgerError> {
        let alone = |settlement| Step { settlement, lease_ms: None };
        let advanced = self.settlements.call(batch.into_iter().map(alone).collect()).await?;
        Ok(advanced.into_iter().map(|advanced| advanced.settled).collect())
    }

    async fn advance(&self, batch: Vec<Settlement>, lease_ms: u64) -> Result<Vec<Advanced>, LedgerError> {
        let step = |settlement| Step { settlement, lease_ms: Some(lease_ms) };
        self.settlements.call(batch.into_iter().map(step).collect()).await
    }

    async fn set_quota(&self, user: UserId, rule: QuotaRule) -> Result<Quota, LedgerError> {
        self.core.set_quota(user, rule).await
    }

    async fn quota(&self, user: UserId) -> Result<Option<Quota>, LedgerError> {
        self.core.quota(user).await
    }

    async fn delete_quota(&self, user: UserId) -> Result<bool, LedgerError> {
        self.core.delete_quota(user).await
    }

    async fn quotas(&self, after: Option<UserId>, max: usize) -> Result<Vec<(UserId, Quota)>, LedgerError> {
        self.core.quotas(after, max).await
    }

    async fn message(&self, id: MessageId) -> Result<Option<MessageRecord>, LedgerError> {
        self.core.message(id).await
    }

    async fn counts(&self) -> Result<Counts, LedgerError> {
        self.core.counts().await
    }

    async fn sweep(&self) -> Result<(), LedgerError> {
        self.core.sweep().await
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn health(&self) -> Health {
        self.health.borrow().clone()
    }

    /// The server's failures end with the server's restart: this process can wait for that.
    async fn failed(&self) -> String {
        std::future::pending().await
    }
}

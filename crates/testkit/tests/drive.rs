//! The driver agrees with an honest ledger and catches a dishonest one.

use std::panic::catch_unwind;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_domain::limits::Quota;
use tidegate_domain::{
    Admission, Admitted, Claim, ClaimRequest, Counts, Durability, Health, Ledger, LedgerError, MessageId,
    MessageRecord, Settled, Settlement, UserId,
};
use tidegate_testkit::drive::compare_with_model;
use tidegate_testkit::{Backend, ModelBackend, Setup};

#[test]
fn the_model_agrees_with_itself() {
    compare_with_model(100, ModelBackend::default);
}

#[test]
fn a_claim_out_of_order_is_caught() {
    assert!(is_caught(Fault::ClaimsOneTooMany));
}

#[test]
fn a_free_message_is_caught() {
    assert!(is_caught(Fault::ChargesNothing));
}

#[test]
fn a_forgotten_key_is_caught() {
    assert!(is_caught(Fault::ForgetsKeys));
}

#[test]
fn an_answer_that_was_not_kept_is_caught() {
    assert!(is_caught(Fault::DropsRetries));
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    ClaimsOneTooMany,
    ChargesNothing,
    ForgetsKeys,
    DropsRetries,
}

fn is_caught(fault: Fault) -> bool {
    catch_unwind(|| compare_with_model(100, || FaultyBackend { fault, inner: ModelBackend::default() }))
        .is_err()
}

struct FaultyBackend {
    fault: Fault,
    inner: ModelBackend,
}

#[derive(Debug)]
struct Faulty {
    fault: Fault,
    inner: Arc<dyn Ledger>,
}

#[async_trait]
impl Backend for FaultyBackend {
    async fn open(&self, setup: &Setup) -> anyhow::Result<Arc<dyn Ledger>> {
        Ok(Arc::new(Faulty { fault: self.fault, inner: self.inner.open(setup).await? }))
    }
}

#[async_trait]
impl Ledger for Faulty {
    async fn admit(&self, mut batch: Vec<Admission>) -> Result<Vec<Admitted>, LedgerError> {
        for admission in &mut batch {
            match self.fault {
                Fault::ChargesNothing => admission.charge = None,
                Fault::ForgetsKeys => admission.idempotency = None,
                _ => (),
            }
        }
        self.inner.admit(batch).await
    }

    async fn claim(&self, mut request: ClaimRequest) -> Result<Vec<Claim>, LedgerError> {
        if self.fault == Fault::ClaimsOneTooMany {
            request.max += 1;
        }
        self.inner.claim(request).await
    }

    async fn settle(&self, batch: Vec<Settlement>) -> Result<Vec<Settled>, LedgerError> {
        if self.fault != Fault::DropsRetries {
            return self.inner.settle(batch).await;
        }
        let mut settled = Vec::new();
        for mut settlement in batch {
            if matches!(settlement.outcome, tidegate_domain::Outcome::Retry { .. }) {
                settlement.outcome = tidegate_domain::Outcome::Released;
            }
            settled.extend(self.inner.settle(vec![settlement]).await?);
        }
        Ok(settled)
    }

    async fn put_quota(&self, user: UserId, limit: u32, window_ms: u64) -> Result<Quota, LedgerError> {
        self.inner.put_quota(user, limit, window_ms).await
    }

    async fn quota(&self, user: UserId) -> Result<Option<Quota>, LedgerError> {
        self.inner.quota(user).await
    }

    async fn delete_quota(&self, user: UserId) -> Result<bool, LedgerError> {
        self.inner.delete_quota(user).await
    }

    async fn quotas(&self, after: Option<UserId>, max: usize) -> Result<Vec<(UserId, Quota)>, LedgerError> {
        self.inner.quotas(after, max).await
    }

    async fn message(&self, id: MessageId) -> Result<Option<MessageRecord>, LedgerError> {
        self.inner.message(id).await
    }

    async fn counts(&self) -> Result<Counts, LedgerError> {
        self.inner.counts().await
    }

    async fn sweep(&self) -> Result<(), LedgerError> {
        self.inner.sweep().await
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }

    fn health(&self) -> Health {
        self.inner.health()
    }

    async fn failed(&self) -> String {
        self.inner.failed().await
    }
}

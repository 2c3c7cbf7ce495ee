//! The driver agrees with an honest ledger and catches a dishonest one.

use std::panic::catch_unwind;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_domain::limits::Quota;
use tidegate_domain::limits::slot::SlotRule;
use tidegate_domain::{
    Admission, Admitted, Claim, ClaimRequest, Counts, Durability, EventId, Forecast, Health, Ledger,
    LedgerError, MessageId, MessageRecord, Released, Reservation, Reserved, Settled, Settlement, Slot,
    SlotConfig, SlotConfigName, SlotConfigPut, Slots, Timestamp, UserId,
};
use tidegate_testkit::drive::{compare_slots_with_model, compare_with_model};
use tidegate_testkit::{Backend, ModelBackend, Opened, Setup};

#[test]
fn the_model_agrees_with_itself() {
    compare_with_model(100, ModelBackend::default);
    compare_slots_with_model(200, ModelBackend::default);
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

#[test]
fn a_slot_given_without_its_message_is_caught() {
    assert!(is_caught(Fault::DropsSlotMessages));
}

#[test]
fn a_place_too_late_is_caught() {
    assert!(is_caught(Fault::SkipsAhead));
}

#[test]
fn a_slot_that_was_not_given_back_is_caught() {
    assert!(is_caught(Fault::KeepsReleased));
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    ClaimsOneTooMany,
    ChargesNothing,
    ForgetsKeys,
    DropsRetries,
    DropsSlotMessages,
    SkipsAhead,
    KeepsReleased,
}

fn is_caught(fault: Fault) -> bool {
    let backend = || FaultyBackend { fault, inner: ModelBackend::default() };
    catch_unwind(|| match fault {
        Fault::DropsSlotMessages | Fault::SkipsAhead | Fault::KeepsReleased => {
            compare_slots_with_model(100, backend);
        }
        _ => compare_with_model(100, backend),
    })
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
    slots: Arc<dyn Slots>,
}

#[async_trait]
impl Backend for FaultyBackend {
    async fn open(&self, setup: &Setup) -> anyhow::Result<Opened> {
        let Opened { ledger, slots } = self.inner.open(setup).await?;
        Ok(Opened::new(Arc::new(Faulty { fault: self.fault, inner: ledger, slots })))
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

#[async_trait]
impl Slots for Faulty {
    async fn put_slot_config(
        &self,
        name: SlotConfigName,
        rule: SlotRule,
    ) -> Result<SlotConfigPut, LedgerError> {
        self.slots.put_slot_config(name, rule).await
    }

    async fn slot_config(&self, name: SlotConfigName) -> Result<Vec<SlotConfig>, LedgerError> {
        self.slots.slot_config(name).await
    }

    async fn reserve(&self, mut batch: Vec<Reservation>) -> Result<Vec<Reserved>, LedgerError> {
        for reservation in &mut batch {
            match self.fault {
                Fault::DropsSlotMessages => reservation.message = None,
                Fault::SkipsAhead => reservation.requested = reservation.requested.plus_ms(1_000),
                _ => (),
            }
        }
        self.slots.reserve(batch).await
    }

    async fn slot(&self, event: EventId) -> Result<Option<Slot>, LedgerError> {
        self.slots.slot(event).await
    }

    async fn release(&self, event: EventId) -> Result<Released, LedgerError> {
        match (self.fault, self.slots.slot(event.clone()).await?) {
            (Fault::KeepsReleased, Some(slot)) if slot.message.is_none() => Ok(Released::Released(slot)),
            _ => self.slots.release(event).await,
        }
    }

    async fn forecast(
        &self,
        config: SlotConfigName,
        requested: Timestamp,
        jitter: u64,
    ) -> Result<Forecast, LedgerError> {
        self.slots.forecast(config, requested, jitter).await
    }
}

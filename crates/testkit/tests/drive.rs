//! The driver agrees with an honest ledger and catches a dishonest one.

use std::panic::catch_unwind;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_domain::limits::slot::SlotRule;
use tidegate_domain::limits::{Quota, QuotaRule};
use tidegate_domain::{
    Acked, Admission, Admitted, Advanced, Begun, Cancelled, Claim, ClaimRequest, Counts, Durability, EventId,
    Extension, Filter, Forecast, Health, Ledger, LedgerError, Listing, MessageId, MessageRecord, Page,
    PickUp, QueueCounts, QueueName, Queues, Recipient, Released, Requeue, Requeued, Reservation, Reserved,
    Settled, Settlement, Slot, SlotConfig, SlotConfigName, SlotConfigPut, Slots, Timestamp, Transit, UserId,
};
use tidegate_testkit::drive::{
    compare_queues_with_model, compare_slots_with_model, compare_spent_attempts_with_model,
    compare_with_model,
};
use tidegate_testkit::{Backend, ModelBackend, Opened, Setup};

#[test]
fn the_model_agrees_with_itself() {
    compare_with_model(100, ModelBackend::default);
    compare_slots_with_model(200, ModelBackend::default);
    compare_queues_with_model(200, ModelBackend::default);
    compare_spent_attempts_with_model(200, ModelBackend::default);
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

#[test]
fn a_pop_that_was_not_kept_is_caught() {
    assert!(is_caught(Fault::PopsWithoutKeeping));
}

#[test]
fn a_lost_ack_is_caught() {
    assert!(is_caught(Fault::DropsAcks));
}

#[test]
fn a_message_picked_up_for_another_recipient_is_caught() {
    assert!(is_caught(Fault::PicksUpForOthers));
}

#[test]
fn a_lost_edit_is_caught() {
    assert!(is_caught(Fault::RequeuesTheOldText));
}

#[test]
fn a_forgotten_pause_is_caught() {
    assert!(is_caught(Fault::ForgetsPauses));
}

#[test]
fn an_expired_message_handed_out_is_caught() {
    assert!(is_caught(Fault::NeverExpires));
}

#[test]
fn one_too_many_in_transit_is_caught() {
    assert!(is_caught(Fault::DispatchesOneTooMany));
}

#[test]
fn an_attempt_spent_on_the_way_is_caught() {
    assert!(is_caught(Fault::DispatchesAsClaims));
}

#[test]
fn a_beginning_that_was_not_kept_is_caught() {
    assert!(is_caught(Fault::BeginsByExtending));
}

#[test]
fn a_next_message_that_is_not_handed_over_is_caught() {
    assert!(is_caught(Fault::KeepsTheNext));
}

#[test]
fn a_lease_after_the_last_attempt_is_caught() {
    assert!(is_caught(Fault::GrantsOneMore));
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
    PopsWithoutKeeping,
    DropsAcks,
    PicksUpForOthers,
    RequeuesTheOldText,
    ForgetsPauses,
    NeverExpires,
    DispatchesOneTooMany,
    DispatchesAsClaims,
    BeginsByExtending,
    KeepsTheNext,
    GrantsOneMore,
}

fn is_caught(fault: Fault) -> bool {
    let backend = || FaultyBackend { fault, inner: ModelBackend::default() };
    catch_unwind(|| match fault {
        Fault::DropsSlotMessages | Fault::SkipsAhead | Fault::KeepsReleased => {
            compare_slots_with_model(100, backend);
        }
        Fault::PopsWithoutKeeping
        | Fault::DropsAcks
        | Fault::PicksUpForOthers
        | Fault::RequeuesTheOldText
        | Fault::ForgetsPauses
        | Fault::NeverExpires => compare_queues_with_model(100, backend),
        Fault::GrantsOneMore => compare_spent_attempts_with_model(100, backend),
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
    queues: Arc<dyn Queues>,
    transit: Arc<dyn Transit>,
}

#[async_trait]
impl Backend for FaultyBackend {
    async fn open(&self, setup: &Setup) -> anyhow::Result<Opened> {
        let mut setup = setup.clone();
        if self.fault == Fault::GrantsOneMore {
            setup
                .queue_rules
                .iter_mut()
                .for_each(|(_, rule)| rule.attempts_max = rule.attempts_max.saturating_add(1));
        }
        let Opened { ledger, slots, queues, transit } = self.inner.open(&setup).await?;
        Ok(Opened::new(Arc::new(Faulty { fault: self.fault, inner: ledger, slots, queues, transit })))
    }
}

#[async_trait]
impl Ledger for Faulty {
    async fn admit(&self, mut batch: Vec<Admission>) -> Result<Vec<Admitted>, LedgerError> {
        for admission in &mut batch {
            match self.fault {
                Fault::ChargesNothing => admission.charge = None,
                Fault::ForgetsKeys => admission.idempotency = None,
                Fault::NeverExpires => admission.expires = None,
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

    async fn advance(&self, batch: Vec<Settlement>, lease_ms: u64) -> Result<Vec<Advanced>, LedgerError> {
        let mut advanced = self.inner.advance(batch, lease_ms).await?;
        if self.fault == Fault::KeepsTheNext {
            advanced.iter_mut().for_each(|advanced| advanced.next = None);
        }
        Ok(advanced)
    }

    async fn set_quota(&self, user: UserId, rule: QuotaRule) -> Result<Quota, LedgerError> {
        self.inner.set_quota(user, rule).await
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

#[async_trait]
impl Queues for Faulty {
    async fn pop(&self, queue: QueueName, max: usize, wait_ms: u64) -> Result<Vec<Claim>, LedgerError> {
        if self.fault == Fault::PopsWithoutKeeping {
            return self.inner.claim(ClaimRequest { queue, max, lease_ms: 60_000, wait_ms }).await;
        }
        self.queues.pop(queue, max, wait_ms).await
    }

    async fn pick_up(&self, mut request: PickUp) -> Result<Vec<Claim>, LedgerError> {
        if self.fault == Fault::PicksUpForOthers {
            request.recipients.push(Recipient::new("recipient1").expect("a valid name"));
        }
        self.queues.pick_up(request).await
    }

    async fn stirred(&self, queue: QueueName, seen: u64, wait_ms: u64) -> Result<u64, LedgerError> {
        self.queues.stirred(queue, seen, wait_ms).await
    }

    async fn extend(&self, batch: Vec<Extension>) -> Result<Vec<Settled>, LedgerError> {
        self.queues.extend(batch).await
    }

    async fn ack(&self, ids: Vec<MessageId>) -> Result<Vec<Acked>, LedgerError> {
        if self.fault == Fault::DropsAcks {
            return Ok(ids.iter().map(|_| Acked::Acked).collect());
        }
        self.queues.ack(ids).await
    }

    async fn cancel(&self, ids: Vec<MessageId>) -> Result<Vec<Cancelled>, LedgerError> {
        self.queues.cancel(ids).await
    }

    async fn list(&self, filter: Filter, page: Page) -> Result<Listing, LedgerError> {
        self.queues.list(filter, page).await
    }

    async fn requeue(&self, mut batch: Vec<Requeue>) -> Result<Vec<Requeued>, LedgerError> {
        if self.fault == Fault::RequeuesTheOldText {
            batch.iter_mut().for_each(|requeue| requeue.body = None);
        }
        self.queues.requeue(batch).await
    }

    async fn delete_dead(&self, ids: Vec<MessageId>) -> Result<Vec<bool>, LedgerError> {
        self.queues.delete_dead(ids).await
    }

    async fn purge(&self, queue: QueueName) -> Result<u64, LedgerError> {
        self.queues.purge(queue).await
    }

    async fn pause(&self, queue: QueueName, paused: bool) -> Result<bool, LedgerError> {
        self.queues.pause(queue, paused && self.fault != Fault::ForgetsPauses).await
    }

    async fn queue_counts(&self) -> Result<Vec<QueueCounts>, LedgerError> {
        self.queues.queue_counts().await
    }
}

#[async_trait]
impl Transit for Faulty {
    async fn dispatch(
        &self,
        request: ClaimRequest,
        in_transit_max: usize,
    ) -> Result<Vec<Claim>, LedgerError> {
        match self.fault {
            Fault::DispatchesOneTooMany => self.transit.dispatch(request, in_transit_max + 1).await,
            Fault::DispatchesAsClaims => {
                let max = request.max.min(in_transit_max);
                self.inner.claim(ClaimRequest { max, ..request }).await
            }
            _ => self.transit.dispatch(request, in_transit_max).await,
        }
    }

    async fn begin(&self, batch: Vec<Extension>) -> Result<Vec<Begun>, LedgerError> {
        if self.fault != Fault::BeginsByExtending {
            return self.transit.begin(batch).await;
        }
        let mut begun = Vec::new();
        for extension in batch {
            let answer = self.queues.extend(vec![extension.clone()]).await?.remove(0);
            let lease_until = Timestamp::default();
            begun.push(match answer {
                Settled::Done => Begun::Begun { token: extension.token, lease_until },
                Settled::LostLease => Begun::LostLease,
            });
        }
        Ok(begun)
    }
}

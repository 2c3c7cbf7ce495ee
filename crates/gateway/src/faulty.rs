mod queues;
mod transit;

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use tidegate_domain::limits::slot::SlotRule;
use tidegate_domain::limits::{Quota, QuotaRule};
use tidegate_domain::*;
use tidegate_testkit::{ModelLedger, Setup};

/// The model ledger with faults on order.
#[derive(Debug)]
pub struct FaultyLedger {
    ledger: ModelLedger,
    faults: Mutex<VecDeque<LedgerError>>,
    sender_faults: AtomicUsize,
    /// The next claim panics: a fault in the sender's own task.
    pub claim_panics: AtomicBool,
    health: Mutex<Health>,
    pub durability: Durability,
    /// Admissions wait for a permit.
    pub gate: tokio::sync::Semaphore,
    /// Each settle call takes a permit, and each pick-up one of its own.
    pub settle_calls: tokio::sync::Semaphore,
    pub pick_ups: tokio::sync::Semaphore,
    /// Whom the last pick-up was for, whether or not it has a permit, and how many there were before it.
    pub last_pick_up: tokio::sync::watch::Sender<(usize, Vec<Recipient>)>,
    /// Leases were asked to last longer, so many times.
    pub extensions: AtomicUsize,
    /// Messages that claims have handed out, and attempts that began with a message in transit.
    pub claimed: AtomicUsize,
    pub begun: AtomicUsize,
    /// Messages that one look-up examines; 0: all.
    pub examined_max: AtomicUsize,
    /// Whose settlement meets a defect, and that of all who are settled with it.
    pub defective: Mutex<Option<MessageId>>,
}

impl FaultyLedger {
    pub fn new(setup: Setup) -> Self {
        Self {
            ledger: ModelLedger::new(setup),
            faults: Mutex::default(),
            sender_faults: AtomicUsize::new(0),
            claim_panics: AtomicBool::new(false),
            health: Mutex::new(Health::Ready),
            durability: Durability::Fsync,
            gate: tokio::sync::Semaphore::new(1_000),
            settle_calls: tokio::sync::Semaphore::new(1_000_000),
            pick_ups: tokio::sync::Semaphore::new(1_000_000),
            last_pick_up: tokio::sync::watch::Sender::default(),
            extensions: AtomicUsize::new(0),
            claimed: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            examined_max: AtomicUsize::new(0),
            defective: Mutex::default(),
        }
    }

    /// The next admissions and quotas fail with these.
    pub fn fail_with(&self, faults: impl IntoIterator<Item = LedgerError>) {
        self.faults.lock().unwrap().extend(faults);
    }

    /// So many of the next claims, pick-ups, dispatches, beginnings and settle calls fail.
    pub fn fail_sender(&self, times: usize) {
        self.sender_faults.store(times, Ordering::SeqCst);
    }

    pub fn set_health(&self, health: Health) {
        *self.health.lock().unwrap() = health;
    }

    fn fault(&self) -> Result<(), LedgerError> {
        self.faults.lock().unwrap().pop_front().map_or(Ok(()), Err)
    }

    fn defect_in(&self, batch: &[Settlement]) -> Result<(), LedgerError> {
        let defective = *self.defective.lock().unwrap();
        let met = batch.iter().any(|settlement| Some(settlement.id) == defective);
        if met { Err(LedgerError::Defect("planted".to_owned())) } else { Ok(()) }
    }

    fn sender_fault(&self) -> Result<(), LedgerError> {
        let left = self.sender_faults.try_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        if left.is_ok() { Err(LedgerError::Unavailable("planted".to_owned())) } else { Ok(()) }
    }
}

#[async_trait]
impl Ledger for FaultyLedger {
    async fn admit(&self, batch: Vec<Admission>) -> Result<Vec<Admitted>, LedgerError> {
        self.fault()?;
        let _permit = self.gate.acquire().await;
        self.ledger.admit(batch).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claim>, LedgerError> {
        assert!(!self.claim_panics.swap(false, Ordering::SeqCst), "planted");
        self.sender_fault()?;
        let claims = self.ledger.claim(request).await?;
        self.claimed.fetch_add(claims.len(), Ordering::SeqCst);
        Ok(claims)
    }

    async fn settle(&self, batch: Vec<Settlement>) -> Result<Vec<Settled>, LedgerError> {
        self.settle_calls.acquire().await.unwrap().forget();
        self.sender_fault()?;
        self.defect_in(&batch)?;
        self.ledger.settle(batch).await
    }

    async fn advance(&self, batch: Vec<Settlement>, lease_ms: u64) -> Result<Vec<Advanced>, LedgerError> {
        self.settle_calls.acquire().await.unwrap().forget();
        self.sender_fault()?;
        self.defect_in(&batch)?;
        self.ledger.advance(batch, lease_ms).await
    }

    async fn set_quota(&self, user: UserId, rule: QuotaRule) -> Result<Quota, LedgerError> {
        self.fault()?;
        self.ledger.set_quota(user, rule).await
    }

    async fn quota(&self, user: UserId) -> Result<Option<Quota>, LedgerError> {
        self.ledger.quota(user).await
    }

    async fn delete_quota(&self, user: UserId) -> Result<bool, LedgerError> {
        self.ledger.delete_quota(user).await
    }

    async fn quotas(&self, after: Option<UserId>, max: usize) -> Result<Vec<(UserId, Quota)>, LedgerError> {
        self.ledger.quotas(after, max).await
    }

    async fn message(&self, id: MessageId) -> Result<Option<MessageRecord>, LedgerError> {
        self.ledger.message(id).await
    }

    async fn counts(&self) -> Result<Counts, LedgerError> {
        self.ledger.counts().await
    }

    async fn sweep(&self) -> Result<(), LedgerError> {
        self.ledger.sweep().await
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn health(&self) -> Health {
        self.health.lock().unwrap().clone()
    }

    async fn failed(&self) -> String {
        loop {
            if let Health::Failed(reason) = self.health() {
                return reason;
            }
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    }
}

#[async_trait]
impl Slots for FaultyLedger {
    async fn put_slot_config(
        &self,
        name: SlotConfigName,
        rule: SlotRule,
    ) -> Result<SlotConfigPut, LedgerError> {
        self.fault()?;
        self.ledger.put_slot_config(name, rule).await
    }

    async fn slot_config(&self, name: SlotConfigName) -> Result<Vec<SlotConfig>, LedgerError> {
        self.ledger.slot_config(name).await
    }

    async fn reserve(&self, batch: Vec<Reservation>) -> Result<Vec<Reserved>, LedgerError> {
        self.fault()?;
        let _permit = self.gate.acquire().await;
        self.ledger.reserve(batch).await
    }

    async fn slot(&self, event: EventId) -> Result<Option<Slot>, LedgerError> {
        self.ledger.slot(event).await
    }

    async fn release(&self, event: EventId) -> Result<Released, LedgerError> {
        self.fault()?;
        self.ledger.release(event).await
    }

    async fn forecast(
        &self,
        config: SlotConfigName,
        requested: Timestamp,
        jitter: u64,
    ) -> Result<Forecast, LedgerError> {
        self.ledger.forecast(config, requested, jitter).await
    }
}

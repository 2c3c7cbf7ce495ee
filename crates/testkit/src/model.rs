//! The oracle: a ledger written straight from the port's contract, with lists and linear scans. It is slow
//! and forgets everything with its process; what it is for is being obviously right.

mod dead;
mod idle;
mod pickups;
mod queues;
mod quotas;
mod row;
mod rules;
mod slots;
mod transit;
mod turn;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_domain::limits::slot::SlotRule;
use tidegate_domain::limits::{Quota, QuotaRule};
use tidegate_domain::{
    Admission, Admitted, Advanced, Claim, ClaimRequest, Clock, Counts, Durability, EventId, Forecast, Health,
    Ledger, LedgerError, MessageId, MessageRecord, Released, Reservation, Reserved, Settled, Settlement,
    Slot, SlotConfig, SlotConfigName, SlotConfigPut, Slots, Timestamp, UserId,
};
use tokio::time::Instant;

use self::rules::Rules;
use crate::{Backend, Opened, Setup};

/// How often a waiting claim looks again. Polling is the naive way to notice both arrivals and due times.
const POLL: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub struct ModelLedger {
    setup: Setup,
    rules: Mutex<Rules>,
    one_moment: AtomicBool,
}

/// Opens the one model again and again.
#[derive(Debug, Default)]
pub struct ModelBackend {
    model: Mutex<Option<Arc<ModelLedger>>>,
}

impl ModelLedger {
    pub fn new(setup: Setup) -> Self {
        let rules = Rules::new(setup.queue_rules.clone());
        Self { setup, rules: Mutex::new(rules), one_moment: AtomicBool::new(false) }
    }

    /// What a restart does to a ledger: leases are void and unspent, everything answered stays.
    pub fn restart(&self) {
        self.rules().restart();
    }

    /// For a test that gives several changes to a ledger as one: they happen at one moment, and nobody looks in
    /// between at whose time is over.
    pub fn in_one_moment(&self, begun: bool) {
        self.one_moment.store(begun, Ordering::SeqCst);
    }

    /// The rules with every ended lease taken back and every message expired whose time is over: both happen by the
    /// clock, not by somebody's sweep.
    fn rules(&self) -> MutexGuard<'_, Rules> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.note_use();
        rules.end_leases(self.setup.clock.now());
        if !self.one_moment.load(Ordering::SeqCst) {
            rules.expire(self.setup.clock.now());
            rules.note_use();
        }
        rules
    }
}

#[async_trait]
impl Ledger for ModelLedger {
    async fn admit(&self, batch: Vec<Admission>) -> Result<Vec<Admitted>, LedgerError> {
        let (mut rules, now) = (self.rules(), self.setup.clock.now());
        Ok(batch.into_iter().map(|admission| rules.admit(admission, now, &self.setup)).collect())
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claim>, LedgerError> {
        let deadline = Instant::now() + Duration::from_millis(request.wait_ms);
        loop {
            let claims = self.rules().claim(&request, self.setup.batch_bytes_max, self.setup.clock.now());
            if !claims.is_empty() || Instant::now() >= deadline {
                return Ok(claims);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn settle(&self, batch: Vec<Settlement>) -> Result<Vec<Settled>, LedgerError> {
        let (mut rules, now) = (self.rules(), self.setup.clock.now());
        Ok(batch.into_iter().map(|settlement| rules.settle(settlement, now)).collect())
    }

    async fn advance(&self, batch: Vec<Settlement>, lease_ms: u64) -> Result<Vec<Advanced>, LedgerError> {
        let (mut rules, now) = (self.rules(), self.setup.clock.now());
        Ok(batch.into_iter().map(|settlement| rules.advance(settlement, lease_ms, now)).collect())
    }

    async fn set_quota(&self, user: UserId, rule: QuotaRule) -> Result<Quota, LedgerError> {
        Ok(self.rules().put_quota(user, rule, self.setup.clock.now()))
    }

    async fn quota(&self, user: UserId) -> Result<Option<Quota>, LedgerError> {
        Ok(self.rules().quota(&user, self.setup.clock.now()))
    }

    async fn delete_quota(&self, user: UserId) -> Result<bool, LedgerError> {
        Ok(self.rules().delete_quota(&user))
    }

    async fn quotas(&self, after: Option<UserId>, max: usize) -> Result<Vec<(UserId, Quota)>, LedgerError> {
        Ok(self.rules().quotas(after.as_ref(), max, self.setup.clock.now()))
    }

    async fn message(&self, id: MessageId) -> Result<Option<MessageRecord>, LedgerError> {
        Ok(self.rules().message(id))
    }

    async fn counts(&self) -> Result<Counts, LedgerError> {
        Ok(self.rules().counts())
    }

    async fn sweep(&self) -> Result<(), LedgerError> {
        let (mut rules, now) = (self.rules(), self.setup.clock.now());
        rules.forget_slots(now, self.setup.slot_retention_ms);
        rules.forget_queues(now, self.setup.queue_forget_after_ms);
        Ok(())
    }

    fn durability(&self) -> Durability {
        Durability::OsBuffer
    }

    fn health(&self) -> Health {
        Health::Ready
    }

    async fn failed(&self) -> String {
        std::future::pending().await
    }
}

#[async_trait]
impl Slots for ModelLedger {
    async fn put_slot_config(
        &self,
        name: SlotConfigName,
        rule: SlotRule,
    ) -> Result<SlotConfigPut, LedgerError> {
        Ok(self.rules().put_slot_config(name, rule, self.setup.clock.now()))
    }

    async fn slot_config(&self, name: SlotConfigName) -> Result<Vec<SlotConfig>, LedgerError> {
        Ok(self.rules().slot_config(&name))
    }

    async fn reserve(&self, batch: Vec<Reservation>) -> Result<Vec<Reserved>, LedgerError> {
        let (mut rules, now) = (self.rules(), self.setup.clock.now());
        Ok(batch.into_iter().map(|reservation| rules.reserve(reservation, now, &self.setup)).collect())
    }

    async fn slot(&self, event: EventId) -> Result<Option<Slot>, LedgerError> {
        Ok(self.rules().slot(&event))
    }

    async fn release(&self, event: EventId) -> Result<Released, LedgerError> {
        Ok(self.rules().release(&event, self.setup.clock.now()))
    }

    async fn forecast(
        &self,
        config: SlotConfigName,
        requested: Timestamp,
        jitter: u64,
    ) -> Result<Forecast, LedgerError> {
        Ok(self.rules().forecast(&config, requested, jitter, &self.setup))
    }
}

#[async_trait]
impl Backend for ModelBackend {
    async fn open(&self, setup: &Setup) -> anyhow::Result<Opened> {
        let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = ModelLedger::new(setup.clone());
        if let Some(closed) = model.take() {
            std::mem::swap(&mut *opened.rules(), &mut *closed.rules());
        }
        opened.restart();
        let opened = model.insert(Arc::new(opened));
        Ok(Opened::new(opened.clone()))
    }
}

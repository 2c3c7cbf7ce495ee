use std::time::Duration;

use async_trait::async_trait;
use tidegate_domain::{
    Acked, AttemptRecord, AttemptResult, Body, Cancelled, Claim, ClaimRequest, Clock, Extension, Filter,
    Lane, LedgerError, Listing, MessageId, MessageRecord, Outcome, Page, PickUp, QueueCounts, QueueName,
    Queues, Requeue, Requeued, Settled, Settlement, Status, Timestamp,
};
use tokio::time::Instant;

use super::pickups::stirred;
use super::row::Row;
use super::rules::Rules;
use super::{ModelLedger, POLL};
use crate::Setup;

#[async_trait]
impl Queues for ModelLedger {
    async fn pop(&self, queue: QueueName, max: usize, wait_ms: u64) -> Result<Vec<Claim>, LedgerError> {
        let deadline = Instant::now() + Duration::from_millis(wait_ms);
        loop {
            let popped = self.rules().pop(&queue, max, &self.setup);
            if !popped.is_empty() || Instant::now() >= deadline {
                return Ok(popped);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn pick_up(&self, request: PickUp) -> Result<Vec<Claim>, LedgerError> {
        Ok(self.rules().pick_up(&request, self.setup.batch_bytes_max, self.setup.clock.now()))
    }

    async fn stirred(&self, _: QueueName, _: u64, wait_ms: u64) -> Result<u64, LedgerError> {
        Ok(stirred(wait_ms).await)
    }

    async fn extend(&self, batch: Vec<Extension>) -> Result<Vec<Settled>, LedgerError> {
        let (mut rules, now) = (self.rules(), self.setup.clock.now());
        Ok(batch.iter().map(|extension| rules.extend(extension, now)).collect())
    }

    async fn ack(&self, ids: Vec<MessageId>) -> Result<Vec<Acked>, LedgerError> {
        let (mut rules, now) = (self.rules(), self.setup.clock.now());
        Ok(ids.into_iter().map(|id| rules.ack(id, now)).collect())
    }

    async fn cancel(&self, ids: Vec<MessageId>) -> Result<Vec<Cancelled>, LedgerError> {
        let (mut rules, now) = (self.rules(), self.setup.clock.now());
        Ok(ids.into_iter().map(|id| rules.cancel(id, now)).collect())
    }

    async fn list(&self, filter: Filter, page: Page) -> Result<Listing, LedgerError> {
        Ok(self.rules().list(&filter, &page))
    }

    async fn requeue(&self, batch: Vec<Requeue>) -> Result<Vec<Requeued>, LedgerError> {
        let (mut rules, now) = (self.rules(), self.setup.clock.now());
        Ok(batch.into_iter().map(|requeue| rules.requeue(requeue, now, &self.setup)).collect())
    }

    async fn delete_dead(&self, ids: Vec<MessageId>) -> Result<Vec<bool>, LedgerError> {
        let mut rules = self.rules();
        Ok(ids.into_iter().map(|id| rules.delete_dead(id)).collect())
    }

    async fn purge(&self, queue: QueueName) -> Result<u64, LedgerError> {
        Ok(self.rules().purge(&queue, self.setup.clock.now()))
    }

    async fn pause(&self, queue: QueueName, paused: bool) -> Result<bool, LedgerError> {
        let named = self.setup.queue_rules.iter().any(|(name, _)| *name == queue);
        Ok(self.rules().pause(&queue, paused, named))
    }

    async fn queue_counts(&self) -> Result<Vec<QueueCounts>, LedgerError> {
        Ok(self.rules().queue_counts())
    }
}

impl Rules {
    /// Claims and delivers, one by one.
    fn pop(&mut self, queue: &QueueName, max: usize, setup: &Setup) -> Vec<Claim> {
        let now = setup.clock.now();
        let one = ClaimRequest { queue: queue.clone(), max: 1, lease_ms: 1, wait_ms: 0 };
        let (mut popped, mut bytes) = (Vec::new(), 0);
        while popped.len() < max {
            let turn = self.turn(queue).clone();
            let Some(claim) = self.claim(&one, usize::MAX, now).pop() else { break };
            bytes += claim.body.as_ref().map_or(0, bytes::Bytes::len);
            if bytes > setup.batch_bytes_max && !popped.is_empty() {
                // It is not taken, so it is still its turn.
                *self.turn(queue) = turn;
                self.give_back(claim.id);
                break;
            }
            let outcome = Outcome::Delivered;
            self.settle(Settlement { id: claim.id, token: claim.token, outcome, latency_ms: 0 }, now);
            popped.push(claim);
        }
        popped
    }

    fn give_back(&mut self, id: MessageId) {
        if let Some(row) = self.known(id) {
            row.lease = None;
        }
    }

    fn extend(&mut self, extension: &Extension, now: Timestamp) -> Settled {
        let lease = self.known(extension.id).and_then(|row| row.lease.as_mut());
        match lease.filter(|lease| lease.token == extension.token) {
            None => Settled::LostLease,
            Some(lease) => {
                lease.until = now.plus_ms(extension.lease_ms);
                Settled::Done
            }
        }
    }

    fn ack(&mut self, id: MessageId, now: Timestamp) -> Acked {
        let Some(row) = self.known(id) else { return Acked::Unknown };
        match row.record.status {
            Status::Delivered => Acked::Already,
            Status::Pending if row.acks > 0 || row.record.ack_required && row.has_been_out() => {
                if let Some(lease) = row.attempt_under_way().filter(|_| row.acks == 0) {
                    let (number, result) = (lease.attempt, AttemptResult::Delivered);
                    row.record.attempts.push(AttemptRecord {
                        number,
                        at: now,
                        latency_ms: 0,
                        result,
                        reason: None,
                    });
                }
                row.end(Status::Delivered, now);
                Acked::Acked
            }
            Status::Dead | Status::Expired if row.is_awaited_late() => {
                row.record.reason = None;
                row.end(Status::Delivered, now);
                Acked::Acked
            }
            _ => Acked::NotAwaited,
        }
    }

    fn cancel(&mut self, id: MessageId, now: Timestamp) -> Cancelled {
        match self.known(id) {
            None => Cancelled::Unknown,
            Some(row) if !row.is_pending() => Cancelled::Ended,
            Some(row) if !row.is_waiting() => Cancelled::UnderWay,
            Some(row) if row.acks > 0 => Cancelled::Sent,
            Some(row) => {
                row.end(Status::Deleted, now);
                Cancelled::Cancelled
            }
        }
    }

    fn list(&self, filter: &Filter, page: &Page) -> Listing {
        let after = |row: &&Row| page.after.is_none_or(|after| row.record.id.seq() > after.seq());
        let shown = self.rows.iter().filter(|row| !row.removed).filter(after);
        let matching = shown.map(|row| &row.record).filter(|record| matches(record, filter));
        let (mut messages, mut bytes) = (Vec::new(), 0);
        for record in matching {
            bytes += record.text_bytes();
            let fits = page.body_bytes_max.is_none_or(|max| bytes <= max) || messages.is_empty();
            if messages.len() == page.max || !fits {
                let next = messages.last().map(|record: &MessageRecord| record.id).or(page.after);
                return Listing { messages, damaged: Vec::new(), next };
            }
            let body = if page.body_bytes_max.is_some() { record.body.clone() } else { Body::Unread };
            messages.push(MessageRecord { body, ..record.clone() });
        }
        Listing { messages, ..Listing::default() }
    }

    fn purge(&mut self, queue: &QueueName, now: Timestamp) -> u64 {
        let of_queue = |row: &&mut Row| row.record.queue == *queue && row.is_waiting() && row.acks == 0;
        self.rows.iter_mut().filter(of_queue).map(|row| row.end(Status::Deleted, now)).count() as u64
    }

    fn pause(&mut self, queue: &QueueName, paused: bool, named: bool) -> bool {
        self.paused.retain(|other| other != queue);
        let known = named || self.queue_names().contains(queue);
        if named {
            self.met.push(queue.clone());
        }
        if known && paused {
            self.paused.push(queue.clone());
        }
        known
    }

    fn queue_counts(&self) -> Vec<QueueCounts> {
        let counts = |queue: QueueName| {
            let pending = || self.rows.iter().filter(|row| row.is_pending() && row.record.queue == queue);
            QueueCounts {
                paused: self.paused.contains(&queue),
                depth: Lane::ALL.map(|lane| pending().filter(|row| row.record.lane == lane).count() as u64),
                leased: pending().filter(|row| row.lease.is_some()).count() as u64,
                queue,
            }
        };
        self.queue_names().into_iter().map(counts).collect()
    }

    pub(super) fn known(&mut self, id: MessageId) -> Option<&mut Row> {
        self.rows.iter_mut().find(|row| row.record.id == id && !row.removed)
    }
}

fn matches(record: &MessageRecord, filter: &Filter) -> bool {
    filter.queue.as_ref().is_none_or(|queue| record.queue == *queue)
        && filter.status.is_none_or(|status| record.status == status)
        && (!filter.ended || record.status != Status::Pending)
        && filter.recipient.as_ref().is_none_or(|wanted| record.recipient.as_ref() == Some(wanted))
        && filter.user.as_ref().is_none_or(|wanted| record.user.as_ref() == Some(wanted))
        && filter.lane.is_none_or(|lane| record.lane == lane)
        && filter.from.is_none_or(|from| record.admitted_at >= from)
        && filter.to.is_none_or(|to| record.admitted_at < to)
}

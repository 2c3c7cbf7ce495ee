//! Dead letters that come back or go for good.

use tidegate_domain::{AttemptRecord, AttemptResult, Body, MessageId, Requeue, Requeued, Status, Timestamp};

use super::row::Row;
use super::rules::Rules;
use crate::Setup;

impl Rules {
    pub fn requeue(&mut self, requeue: Requeue, now: Timestamp, setup: &Setup) -> Requeued {
        let Some((queue, lane, expires)) = self
            .dead(requeue.id)
            .map(|row| (row.record.queue.clone(), row.record.lane, row.record.expires_at))
        else {
            return Requeued::NotDead;
        };
        if expires.is_some_and(|at| at <= now.plus_ms(requeue.delay_ms)) {
            return Requeued::Expired;
        }
        if !self.has_room(lane, setup) {
            return Requeued::Full;
        }
        if !self.queue_has_room(&queue, lane, setup) {
            return Requeued::QueueFull;
        }
        self.last_order += 1;
        let order = self.last_order;
        let Some(row) = self.dead(requeue.id) else { return Requeued::NotDead };
        row.order = order;
        (row.failures, row.acks) = (0, 0);
        row.held_until = None;
        row.spent = row.record.attempts.last().map_or(0, |attempt| attempt.number) + 1;
        let result = AttemptResult::Requeued;
        let attempt = AttemptRecord { number: row.spent, at: now, latency_ms: 0, result, reason: None };
        let record = &mut row.record;
        record.attempts.push(attempt);
        (record.status, record.settled_at, record.reason) = (Status::Pending, None, None);
        record.due_at = now.plus_ms(requeue.delay_ms);
        if let Some(body) = requeue.body {
            record.body = Body::Whole(body);
        }
        Requeued::Requeued
    }

    pub fn delete_dead(&mut self, id: MessageId) -> bool {
        let Some(row) = self.dead(id) else { return false };
        row.record.status = Status::Deleted;
        row.removed = true;
        true
    }

    fn dead(&mut self, id: MessageId) -> Option<&mut Row> {
        self.known(id).filter(|row| row.record.status == Status::Dead)
    }
}

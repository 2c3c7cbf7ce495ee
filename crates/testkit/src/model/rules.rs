use tidegate_domain::limits::{Quota, QuotaRule};
use tidegate_domain::{
    Admission, Admitted, Advanced, AttemptRecord, AttemptResult, Claim, ClaimRequest, Counts, Idempotency,
    Lane, MessageId, MessageRecord, OnLimit, Order, Outcome, QueueName, QueueRule, Settled, Settlement,
    Status, Timestamp, UserId, lapsed_reason,
};

use super::idle::Idle;
use super::quotas::Account;
use super::row::{Lease, Row};
use super::slots::SlotBook;
use super::turn::Turn;
use crate::Setup;

#[derive(Debug, Default)]
pub struct Rules {
    /// In admission order: a row's place is its sequence number less one.
    pub(super) rows: Vec<Row>,
    pub(super) slots: SlotBook,
    keys: Vec<UsedKey>,
    accounts: Vec<Account>,
    pub(super) turns: Vec<Turn>,
    last_token: u64,
    pub(super) last_order: u64,
    pub(super) paused: Vec<QueueName>,
    /// Queues of the settings that were paused or resumed, with or without messages.
    pub(super) met: Vec<QueueName>,
    pub(super) queue_rules: Vec<(QueueName, QueueRule)>,
    pub(super) idle: Idle,
}

#[derive(Debug)]
struct UsedKey {
    idempotency: Idempotency,
    id: MessageId,
    at: Timestamp,
}

impl Rules {
    pub fn new(queue_rules: Vec<(QueueName, QueueRule)>) -> Self {
        Self { queue_rules, ..Self::default() }
    }

    pub fn restart(&mut self) {
        self.turns.clear();
        self.idle.restart();
        for row in &mut self.rows {
            row.lease = None;
            row.held_until = None;
            // An attempt that only a lease knew of is forgotten with it.
            row.spent = row.record.attempts.last().map_or(0, |attempt| attempt.number);
            row.failures = row.failures_recorded();
        }
    }

    pub fn end_leases(&mut self, now: Timestamp) {
        for row in &mut self.rows {
            if let Some(lease) = row.lease.filter(|lease| now >= lease.until) {
                row.lease = None;
                // What got lost on its way was not tried.
                if !lease.in_transit {
                    let named = self.queue_rules.iter().find(|(name, _)| *name == row.record.queue);
                    let rule = named.map_or_else(QueueRule::default, |(_, rule)| *rule);
                    let is_exhausted = rule.is_exhausted(row.failures);
                    row.spent = lease.attempt;
                    row.failures += 1;
                    if is_exhausted {
                        let reason = lapsed_reason(row.failures);
                        row.fail(lease.attempt, now, 0, reason.clone());
                        row.end(Status::Dead, now);
                        row.record.reason = Some(reason);
                    }
                }
            }
        }
    }

    /// What nobody holds and whose time is over has expired, whenever somebody looks.
    pub fn expire(&mut self, now: Timestamp) {
        let over = |row: &&mut Row| row.is_waiting() && row.record.expires_at.is_some_and(|at| at <= now);
        self.rows.iter_mut().filter(over).for_each(|row| row.end(Status::Expired, now));
    }

    pub fn admit(&mut self, admission: Admission, now: Timestamp, setup: &Setup) -> Admitted {
        if let Some(idempotency) = admission.idempotency
            && let Some(used) = self.used_key(idempotency, now, setup.idempotency_window_ms)
        {
            return if used.idempotency.fingerprint == idempotency.fingerprint {
                Admitted::Duplicate { id: used.id, at: used.at }
            } else {
                Admitted::KeyConflict { id: used.id }
            };
        }
        if !self.has_room(admission.lane, setup) {
            return Admitted::Full;
        }
        if !self.queue_has_room(&admission.queue, admission.lane, setup) {
            return Admitted::QueueFull;
        }
        let mut deferred_to = None;
        let quota = match &admission.charge {
            None => None,
            Some(user) => match self.account(user) {
                None => return Admitted::UnknownUser,
                Some(account) => match (account.charge(now), admission.on_limit) {
                    (Ok(()), _) => Some(account.quota),
                    (Err(_), _) if account.quota.exempts_high && admission.lane == Lane::High => {
                        Some(account.quota)
                    }
                    (Err(retry_after_ms), OnLimit::Deny) => {
                        return Admitted::OverQuota { retry_after_ms, at: now, quota: account.quota };
                    }
                    (Err(retry_after_ms), OnLimit::Defer { horizon_ms }) => {
                        deferred_to = account.defer(now, horizon_ms);
                        if deferred_to.is_none() {
                            return Admitted::OverQuota { retry_after_ms, at: now, quota: account.quota };
                        }
                        Some(account.quota)
                    }
                },
            },
        };
        let id = MessageId::new(now, self.rows.len() as u64 + 1, 42);
        if let Some(idempotency) = admission.idempotency {
            self.keys.push(UsedKey { idempotency, id, at: now });
        }
        self.last_order += 1;
        let strict = setup.rule_of(&admission.queue).order == Order::Strict;
        let mut row = Row::new(id, admission, now, self.last_order, strict);
        if let (Some(due), Some(quota)) = (deferred_to, quota) {
            // The later of what the caller asked for and what the quota allows.
            let due = due.max(row.record.due_at);
            row.record.due_at = due;
            self.rows.push(row);
            return Admitted::Deferred { id, at: now, due, quota };
        }
        self.rows.push(row);
        Admitted::Admitted { id, at: now, quota }
    }

    pub fn claim(&mut self, request: &ClaimRequest, bytes_max: usize, now: Timestamp) -> Vec<Claim> {
        self.lease(request, (request.max, bytes_max), false, now)
    }

    pub(super) fn lease(
        &mut self,
        request: &ClaimRequest,
        (max, bytes_max): (usize, usize),
        in_transit: bool,
        now: Timestamp,
    ) -> Vec<Claim> {
        let (mut claims, mut bytes) = (Vec::new(), 0);
        while claims.len() < max {
            let turn = self.turn(&request.queue).clone();
            let Some(place) = self.choose(&request.queue, now) else { break };
            bytes += self.rows[place].record.body.len();
            if bytes > bytes_max && !claims.is_empty() {
                // It is not taken, so it is still its turn.
                *self.turn(&request.queue) = turn;
                break;
            }
            claims.push(self.lease_row(place, request.lease_ms, in_transit, now));
        }
        claims
    }

    pub(super) fn lease_row(
        &mut self,
        place: usize,
        lease_ms: u64,
        in_transit: bool,
        now: Timestamp,
    ) -> Claim {
        let token = self.next_token();
        let row = &mut self.rows[place];
        let attempt = row.spent + 1;
        let until = now.plus_ms(lease_ms);
        row.lease = Some(Lease { token, until, attempt, in_transit });
        let record = row.record.clone();
        Claim {
            id: record.id,
            queue: record.queue,
            recipient: record.recipient,
            lane: record.lane,
            user: record.user,
            admitted_at: record.admitted_at,
            attempt,
            failures: row.failures,
            ack_attempts: row.acks,
            ack_required: record.ack_required,
            headers: record.headers,
            token,
            lease_until: until,
            body: record.body.bytes().cloned(),
        }
    }

    pub fn advance(&mut self, settlement: Settlement, lease_ms: u64, now: Timestamp) -> Advanced {
        let (id, ends) = (settlement.id, settlement.outcome.ends_message());
        let settled = self.settle(settlement, now);
        let next = if settled == Settled::Done && ends { self.next_of_chain(id, now) } else { None };
        let next = next.map(|place| self.lease_row(place, lease_ms, false, now));
        Advanced { settled, next }
    }

    /// The next message of an ended one's recipient, if it could be claimed now.
    fn next_of_chain(&self, ended: MessageId, now: Timestamp) -> Option<usize> {
        let ended = self.rows.iter().find(|row| row.record.id == ended).filter(|row| row.strict)?;
        if self.paused.contains(&ended.record.queue) {
            return None;
        }
        (0..self.rows.len())
            .find(|&place| self.rows[place].waits_in_chain_of(ended) && self.is_claimable(place, now))
    }

    pub(super) fn next_token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }

    pub fn settle(&mut self, settlement: Settlement, now: Timestamp) -> Settled {
        let Some(row) = self.rows.iter_mut().find(|row| row.record.id == settlement.id) else {
            return Settled::LostLease;
        };
        let Some(lease) = row.lease.filter(|lease| lease.token == settlement.token) else {
            return Settled::LostLease;
        };
        row.lease = None;
        let mut record_attempt = |result, reason| {
            let latency_ms = settlement.latency_ms;
            let attempt = AttemptRecord { number: lease.attempt, at: now, latency_ms, result, reason };
            row.record.attempts.push(attempt);
        };
        let (status, reason) = match settlement.outcome.within_bounds() {
            Outcome::Released => return Settled::Done,
            Outcome::Held { for_ms } => {
                row.held_until = Some(now.plus_ms(for_ms));
                return Settled::Done;
            }
            Outcome::Retry { delay_ms, reason } => {
                record_attempt(AttemptResult::Failed, Some(reason));
                row.spent = lease.attempt;
                row.failures += 1;
                row.held_until = None;
                row.record.due_at = now.plus_ms(delay_ms);
                return Settled::Done;
            }
            Outcome::Accepted { ack_within_ms } => {
                record_attempt(AttemptResult::Accepted, None);
                row.spent = lease.attempt;
                row.acks += 1;
                row.held_until = None;
                row.record.due_at = now.plus_ms(ack_within_ms);
                return Settled::Done;
            }
            Outcome::Delivered => {
                record_attempt(AttemptResult::Delivered, None);
                (Status::Delivered, None)
            }
            Outcome::Dead { reason } => {
                record_attempt(AttemptResult::Failed, Some(reason.clone()));
                (Status::Dead, Some(reason))
            }
            // The others are no attempts.
            Outcome::GivenUp { reason } => (Status::Dead, Some(reason)),
            Outcome::Expired => (Status::Expired, None),
        };
        row.record.status = status;
        row.record.settled_at = Some(now);
        row.record.reason = reason;
        Settled::Done
    }

    pub fn put_quota(&mut self, user: UserId, rule: QuotaRule, now: Timestamp) -> Quota {
        match self.accounts.iter_mut().find(|account| account.user == user) {
            Some(account) => account.reconfigure(rule, now),
            None => self.accounts.push(Account::new(user.clone(), rule, now)),
        }
        self.quota(&user, now).expect("just put")
    }

    pub fn quota(&mut self, user: &UserId, now: Timestamp) -> Option<Quota> {
        let account = self.account(user)?;
        account.catch_up(now);
        Some(account.quota)
    }

    pub fn delete_quota(&mut self, user: &UserId) -> bool {
        let account = self.account(user);
        account.map(|account| account.is_deleted = true).is_some()
    }

    fn account(&mut self, user: &UserId) -> Option<&mut Account> {
        self.accounts.iter_mut().find(|account| account.user == *user && !account.is_deleted)
    }

    pub fn quotas(&mut self, after: Option<&UserId>, max: usize, now: Timestamp) -> Vec<(UserId, Quota)> {
        self.accounts.iter_mut().for_each(|account| account.catch_up(now));
        let mut all: Vec<_> = self
            .accounts
            .iter()
            .filter(|account| !account.is_deleted)
            .map(|account| (account.user.clone(), account.quota))
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all.into_iter().filter(|(user, _)| after.is_none_or(|after| user > after)).take(max).collect()
    }

    pub fn message(&self, id: MessageId) -> Option<MessageRecord> {
        self.rows.iter().find(|row| row.record.id == id && !row.removed).map(|row| row.record.clone())
    }

    pub fn counts(&self) -> Counts {
        let count = |wanted: &dyn Fn(&Row) -> bool| self.rows.iter().filter(|row| wanted(row)).count() as u64;
        Counts {
            admitted: self.rows.len() as u64,
            delivered: count(&|row| row.record.status == Status::Delivered),
            dead: count(&|row| row.record.status == Status::Dead),
            expired: count(&|row| row.record.status == Status::Expired),
            deleted: count(&|row| row.record.status == Status::Deleted),
            pending: count(&Row::is_pending),
            leased: count(&|row| row.lease.is_some()),
            depth: Lane::ALL.map(|lane| count(&|row| row.is_pending() && row.record.lane == lane)),
        }
    }

    pub(super) fn has_room(&self, lane: Lane, setup: &Setup) -> bool {
        let pending = self.rows.iter().filter(|row| row.is_pending()).count();
        pending < setup.pending_max || lane == Lane::High && pending < setup.pending_hard_max
    }

    pub(super) fn queue_has_room(&self, queue: &QueueName, lane: Lane, setup: &Setup) -> bool {
        let pending = self.rows.iter().filter(|row| row.is_pending() && row.record.queue == *queue).count();
        setup.rule_of(queue).lets_in(pending as u64, lane)
    }

    fn used_key(&self, wanted: Idempotency, now: Timestamp, window_ms: u64) -> Option<&UsedKey> {
        let current = |used: &&UsedKey| now.since_ms(used.at) < window_ms;
        self.keys.iter().filter(current).rfind(|used| used.idempotency.key == wanted.key)
    }

    /// The next message to be leased, as a place in `rows`.
    fn choose(&mut self, queue: &QueueName, now: Timestamp) -> Option<usize> {
        if self.paused.contains(queue) {
            return None;
        }
        let mut candidates: Vec<(Lane, Timestamp, usize)> = (0..self.rows.len())
            .filter(|&place| self.rows[place].record.queue == *queue && self.is_claimable(place, now))
            .map(|place| (self.lane_of_chain(place), self.rows[place].claimable_at(), place))
            .collect();
        candidates.sort();
        let mut lanes: Vec<Lane> = candidates.iter().map(|(lane, ..)| *lane).collect();
        lanes.dedup();
        let lane = match lanes.as_slice() {
            [] => return None,
            lanes => lanes[self.turn(queue).choose(lanes.len())],
        };
        candidates.iter().find(|(its, ..)| *its == lane).map(|(.., place)| *place)
    }

    pub(super) fn is_claimable(&self, place: usize, now: Timestamp) -> bool {
        let row = &self.rows[place];
        let is_head = !self.rows.iter().any(|other| other.waits_in_chain_of(row) && other.order < row.order);
        row.is_pending() && is_head && row.lease.is_none() && row.claimable_at() <= now
    }

    pub(super) fn lane_of_chain(&self, place: usize) -> Lane {
        let row = &self.rows[place];
        let chain = self.rows.iter().filter(|other| other.waits_in_chain_of(row));
        chain.map(|other| other.record.lane).chain([row.record.lane]).min().unwrap_or_default()
    }

    pub(super) fn turn(&mut self, queue: &QueueName) -> &mut Turn {
        if !self.turns.iter().any(|turn| turn.queue == *queue) {
            let rule = self.queue_rules.iter().find(|(name, _)| name == queue);
            let rule = rule.map_or_else(QueueRule::default, |(_, rule)| *rule);
            self.turns.push(Turn::new(queue.clone(), rule.higher_per_lower));
        }
        self.turns.iter_mut().find(|turn| turn.queue == *queue).expect("just made")
    }
}

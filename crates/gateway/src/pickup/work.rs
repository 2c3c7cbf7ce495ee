use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tidegate_domain::{
    Advanced, BATCH_BYTES_MAX, Claim, Delivery, LedgerError, MessageId, Outcome, PickUp, Recipient, Settled,
    Settlement, outcome_of,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Pickup;
use crate::devices::{DeviceMessage, Newcomer};
use crate::sender::{Backoff, count, handed_back, hopeless, settle};
use crate::stop::Stop;
use crate::waits::{now_or_later, sleep_until};

/// How long those who listen wait at the most for what the ledger gives no hint of: a message that has fallen due.
const LOOK_EVERY_MS: u64 = 1_000;
/// A look for everybody who listens is followed by a rest of so many times its length, so that however many listen, such
/// looks take a fixed share of the ledger's time.
const REST_PER_LOOK: u32 = 4;
const REST_MIN: Duration = Duration::from_millis(2);
const REST_MAX: Duration = Duration::from_millis(500);
/// Newcomers that one call looks for. Each of them may have a message.
const NEWCOMERS_MAX: usize = 1_000;
/// Messages of one call.
const PICKED_UP_MAX: usize = 1_000;
/// Offered and not settled: far more than are written to devices at the same time.
const OPEN_MAX: usize = 20_000;
/// Bytes of bodies beyond which nothing more is picked up. A call may pass it once.
const BYTES_UNDER_WAY_MAX: usize = 32 << 20;
/// How long devices have to begin with a message that they are offered. Those that read nothing hold it no longer back
/// from a device elsewhere.
const PATIENCE: Duration = Duration::from_secs(5);
/// For the ledger to take what is handed back. Should it fail to, the leases end by themselves.
const LAST_CALL: Duration = Duration::from_secs(2);

type Picked = (usize, Duration, Result<Vec<Claim>, LedgerError>);
/// Those who wait to be told that it has been looked for their recipient.
type Told = Vec<oneshot::Sender<()>>;
type SettledBatch = (Vec<Settlement>, Result<Vec<Advanced>, LedgerError>);

/// One call that picks up, any number of offers and one settle call under way at the same time, all in one task. A call under
/// way is always awaited, since its messages are leased whether or not the answer is read.
pub struct Work {
    pickup: Pickup,
    stop: Stop,
    stopped_at: Option<Instant>,
    /// Recipients to look for before all others.
    asking: HashMap<Recipient, Told>,
    /// Those that are being looked for; none when it is looked for everybody.
    asked: HashMap<Recipient, Told>,
    /// Recipients with an open message, and those who came meanwhile. They are given it if no device has it yet;
    /// otherwise it is looked for them when it is settled.
    busy: HashMap<Recipient, Told>,
    /// Something may have come for any recipient that listens.
    is_stirred: bool,
    /// The last look was for newcomers: the next is for everybody, however many newcomers there are.
    newcomers_were_last: bool,
    rests_until: Instant,
    picking: Option<BoxFuture<'static, Picked>>,
    stirring: Option<BoxFuture<'static, Result<u64, LedgerError>>>,
    seen: u64,
    offers: FuturesUnordered<BoxFuture<'static, Settlement>>,
    /// Leased here: a recipient has one message at a time.
    open: HashMap<MessageId, Open>,
    bytes_under_way: usize,
    ended: Vec<Settlement>,
    settling: Option<BoxFuture<'static, SettledBatch>>,
    pick_backoff: Backoff,
    settle_backoff: Backoff,
}

struct Open {
    recipient: Recipient,
    token: u64,
    bytes: usize,
}

impl Work {
    pub fn new(pickup: Pickup, stop: Stop) -> Self {
        Self {
            pickup,
            stop,
            stopped_at: None,
            asking: HashMap::new(),
            asked: HashMap::new(),
            busy: HashMap::new(),
            is_stirred: false,
            newcomers_were_last: false,
            rests_until: Instant::now(),
            picking: None,
            stirring: None,
            seen: 0,
            offers: FuturesUnordered::new(),
            open: HashMap::new(),
            bytes_under_way: 0,
            ended: Vec::new(),
            settling: None,
            pick_backoff: Backoff::new("pick_up"),
            settle_backoff: Backoff::new("settle"),
        }
    }

    /// Returns after a stop, when everything picked up is settled or handed back, or the time for that is over.
    pub async fn run(mut self) {
        let desk = self.pickup.desk.clone();
        loop {
            self.begin_settle();
            self.begin_pick_up();
            self.begin_stirring();
            if self.stopped_at.is_some() && self.is_idle() {
                return;
            }
            let deadline = self.stopped_at.map(|at| at + self.pickup.drain_timeout);
            let goes_on = self.stopped_at.is_none();
            tokio::select! {
                Some(settlement) = self.offers.next() => self.offer_ended(settlement),
                picked = now_or_later(&mut self.picking) => self.picked_up(picked),
                settled = now_or_later(&mut self.settling) => self.settle_ended(settled),
                newcomers = desk.newcomers(), if goes_on => self.welcome(newcomers),
                stirred = now_or_later(&mut self.stirring), if goes_on => self.stirred(&stirred),
                () = self.stop.wait(), if goes_on => self.end(),
                () = sleep_until(deadline) => return self.hand_back().await,
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.picking.is_none() && self.open.is_empty() && self.ended.is_empty() && self.settling.is_none()
    }

    fn end(&mut self) {
        self.stopped_at = Some(Instant::now());
        self.asking.clear();
        self.busy.values_mut().for_each(Vec::clear);
    }

    fn welcome(&mut self, newcomers: Vec<Newcomer>) {
        // Others have left again, or were given what was open when they came.
        for Newcomer { recipient, looked } in newcomers.into_iter().filter(|one| !one.looked.is_closed()) {
            match self.busy.get_mut(&recipient) {
                Some(told) => told.push(looked),
                None => self.asking.entry(recipient).or_default().push(looked),
            }
        }
    }

    fn begin_stirring(&mut self) {
        if self.stirring.is_some() || self.stopped_at.is_some() || self.is_stirred {
            return;
        }
        let (queues, queue, seen) = (self.pickup.queues.clone(), self.pickup.queue.clone(), self.seen);
        let rest = self.rests_until.saturating_duration_since(Instant::now());
        self.stirring = Some(
            async move {
                if !rest.is_zero() {
                    tokio::time::sleep(rest).await;
                }
                queues.stirred(queue, seen, LOOK_EVERY_MS).await
            }
            .boxed(),
        );
    }

    /// Whether something has changed or only time has passed: it is looked for everybody.
    fn stirred(&mut self, stirred: &Result<u64, LedgerError>) {
        self.stirring = None;
        self.is_stirred = true;
        self.rests_until = Instant::now() + REST_MIN;
        match stirred {
            Ok(count) => self.seen = *count,
            Err(_) => self.rests_until = Instant::now() + REST_MAX,
        }
    }

    fn begin_pick_up(&mut self) {
        let is_full = self.open.len() >= OPEN_MAX || self.bytes_under_way >= BYTES_UNDER_WAY_MAX;
        if self.picking.is_some() || self.stopped_at.is_some() || is_full {
            return;
        }
        let mut recipients = if self.newcomers_were_last { self.everybody() } else { Vec::new() };
        self.newcomers_were_last = false;
        if recipients.is_empty() {
            recipients = self.newcomers();
            self.newcomers_were_last = !recipients.is_empty();
        }
        if recipients.is_empty() {
            recipients = self.everybody();
        }
        if recipients.is_empty() {
            return;
        }
        let max = PICKED_UP_MAX.min(OPEN_MAX - self.open.len());
        let (queue, lease_ms) = (self.pickup.queue.clone(), self.pickup.settings.lease_ms);
        let request = PickUp { queue, recipients, max, lease_ms };
        let (queues, delay, mut stop) =
            (self.pickup.queues.clone(), self.pick_backoff.delay(), self.stop.clone());
        self.picking = Some(
            async move {
                if !delay.is_zero() && tokio::time::timeout(delay, stop.wait()).await.is_ok() {
                    return (max, Duration::ZERO, Err(LedgerError::Unavailable("stopping".to_owned())));
                }
                let begun = Instant::now();
                let picked = queues.pick_up(request).await;
                (max, begun.elapsed(), picked)
            }
            .boxed(),
        );
    }

    /// Those to be looked for before all others.
    fn newcomers(&mut self) -> Vec<Recipient> {
        let recipients: Vec<Recipient> = self.asking.keys().take(NEWCOMERS_MAX).cloned().collect();
        self.asked = recipients.iter().filter_map(|recipient| self.asking.remove_entry(recipient)).collect();
        // Those who have left meanwhile need no look.
        self.asked.retain(|recipient, _| self.pickup.desk.listens(recipient));
        self.asked.keys().cloned().collect()
    }

    /// Those who listen, if something may have come for them.
    fn everybody(&mut self) -> Vec<Recipient> {
        if !std::mem::take(&mut self.is_stirred) {
            return Vec::new();
        }
        let mut recipients = self.pickup.desk.listening();
        recipients.retain(|recipient| !self.busy.contains_key(recipient));
        recipients
    }

    fn picked_up(&mut self, (max, took, picked): Picked) {
        self.picking = None;
        let asked = std::mem::take(&mut self.asked);
        match picked {
            Ok(claims) => {
                self.pick_backoff.succeeded();
                let bytes: usize =
                    claims.iter().filter_map(|claim| claim.body.as_ref()).map(bytes::Bytes::len).sum();
                let is_cut = claims.len() >= max || bytes >= BATCH_BYTES_MAX / 2;
                let found: HashSet<_> = claims.iter().filter_map(|claim| claim.recipient.clone()).collect();
                claims.into_iter().for_each(|claim| self.offer(claim));
                if asked.is_empty() {
                    self.rests_until = Instant::now() + (took * REST_PER_LOOK).clamp(REST_MIN, REST_MAX);
                    self.is_stirred |= is_cut;
                }
                for (recipient, told) in asked {
                    if found.contains(&recipient) {
                        self.busy.entry(recipient).or_default().extend(told);
                    } else if is_cut {
                        self.ask_again(recipient, told);
                    } else {
                        tell(told);
                    }
                }
            }
            Err(error) => {
                self.pick_backoff.failed(&error);
                self.is_stirred |= asked.is_empty();
                asked.into_iter().for_each(|(recipient, told)| self.ask_again(recipient, told));
            }
        }
    }

    fn ask_again(&mut self, recipient: Recipient, told: Told) {
        if self.stopped_at.is_none() {
            self.asking.entry(recipient).or_default().extend(told);
        }
    }

    fn offer(&mut self, claim: Claim) {
        let Some(recipient) = claim.recipient.clone() else {
            self.ended.push(handed_back(&claim));
            return;
        };
        let body = claim.body.clone();
        let bytes = body.as_ref().map_or(0, bytes::Bytes::len);
        self.bytes_under_way += bytes;
        // A look for a recipient whose message is open could find nothing, while the next one waits behind it.
        let told = self.asking.remove(&recipient).unwrap_or_default();
        self.busy.entry(recipient.clone()).or_default().extend(told);
        let open = Open { recipient: recipient.clone(), token: claim.token, bytes };
        if let Some(before) = self.open.insert(claim.id, open) {
            self.bytes_under_way -= before.bytes;
        }
        if self.stopped_at.is_some() {
            self.ended.push(handed_back(&claim));
            return;
        }
        let body = match (hopeless(&claim, &self.pickup.settings.retry), body) {
            (None, Some(body)) => body,
            (settlement, _) => {
                self.ended.extend(settlement);
                return;
            }
        };
        let lease = Duration::from_millis(self.pickup.settings.lease_ms);
        let offered = self.pickup.desk.offer(
            &recipient,
            DeviceMessage::new(&claim, body),
            PATIENCE.min(lease / 2),
            lease,
        );
        let Some(offered) = offered else {
            self.ended.push(handed_back(&claim));
            return;
        };
        let (begun, retry) = (Instant::now(), self.pickup.settings.retry);
        self.offers.push(
            async move {
                if !offered.await {
                    return handed_back(&claim);
                }
                let delivery = if claim.ack_required { Delivery::Accepted } else { Delivery::Delivered };
                count(&delivery);
                let latency_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                let outcome = outcome_of(delivery, claim.failures, &retry);
                Settlement { id: claim.id, token: claim.token, outcome, latency_ms }
            }
            .boxed(),
        );
    }

    fn offer_ended(&mut self, settlement: Settlement) {
        let mut next = Some(settlement);
        while let Some(settlement) = next {
            self.ended.push(settlement);
            next = self.offers.next().now_or_never().flatten();
        }
    }

    fn begin_settle(&mut self) {
        if self.settling.is_some() || self.ended.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut self.ended);
        // A recipient that listens on is handed its next message without another call.
        let listens = |one: &Settlement| {
            let open = self.open.get(&one.id);
            open.is_some_and(|open| self.pickup.desk.listens(&open.recipient))
        };
        let goes_on = self.stopped_at.is_none() && batch.iter().any(listens);
        let next_lease_ms = goes_on.then_some(self.pickup.settings.lease_ms);
        let (ledger, delay) = (self.pickup.ledger.clone(), self.settle_backoff.delay());
        self.settling = Some(
            async move {
                if !delay.is_zero() {
                    tokio::time::sleep(delay).await;
                }
                let settled = settle(&*ledger, &batch, next_lease_ms).await;
                (batch, settled)
            }
            .boxed(),
        );
    }

    /// A batch that failed is settled again: fencing makes a repetition harmless.
    fn settle_ended(&mut self, (batch, settled): SettledBatch) {
        self.settling = None;
        match settled {
            Ok(results) => {
                self.settle_backoff.succeeded();
                for (settlement, advanced) in batch.iter().zip(results) {
                    if advanced.settled == Settled::Done {
                        self.pickup.tally.settled(settlement);
                    } else if !matches!(settlement.outcome, Outcome::Accepted { .. }) {
                        // A quick recipient's ack ends its message before this settlement.
                        metrics::counter!("tidegate_sender_lost_leases_total").increment(1);
                    }
                    self.close(settlement.id, advanced.next);
                }
            }
            Err(error @ LedgerError::Corrupt(_)) => {
                tracing::error!(%error, settlements = batch.len(), "settlements are given up");
                self.settle_backoff.failed(&error);
                batch.iter().for_each(|settlement| self.close(settlement.id, None));
            }
            Err(error) => {
                self.settle_backoff.failed(&error);
                self.ended.extend(batch);
            }
        }
    }

    /// A recipient's message is settled. Its next one is offered, or it is looked for: while it was busy it was left out of
    /// looks.
    fn close(&mut self, id: MessageId, next: Option<Claim>) {
        self.pickup.desk.settled(id);
        let Some(open) = self.open.remove(&id) else { return };
        self.bytes_under_way -= open.bytes;
        let mut told = self.busy.remove(&open.recipient).unwrap_or_default();
        told.retain(|told| !told.is_closed());
        if let Some(next) = next {
            self.offer(next);
            // Of two recipients whose hashes collide, the next message may be the other's.
            match self.busy.get_mut(&open.recipient) {
                Some(waiting) => waiting.extend(told),
                None => self.ask_again(open.recipient, told),
            }
        } else if !told.is_empty() || self.pickup.desk.listens(&open.recipient) {
            self.ask_again(open.recipient, told);
        }
    }

    /// The time is over. Whether a device has what is still being written to it is not known: it is handed out again.
    async fn hand_back(mut self) {
        self.offers.clear();
        let settled: Vec<MessageId> = self.ended.iter().map(|settlement| settlement.id).collect();
        let cut_off = self.open.iter().filter(|(id, _)| !settled.contains(id));
        let released = cut_off.map(|(id, open)| Settlement {
            id: *id,
            token: open.token,
            outcome: Outcome::Released,
            latency_ms: 0,
        });
        let released: Vec<_> = released.collect();
        self.ended.extend(released);
        let last = Instant::now() + LAST_CALL;
        while !self.is_idle() {
            self.begin_settle();
            tokio::select! {
                picked = now_or_later(&mut self.picking) => self.picked_up(picked),
                settled = now_or_later(&mut self.settling) => self.settle_ended(settled),
                () = tokio::time::sleep_until(last) => return,
            }
        }
    }
}

/// Those who have gone meanwhile hear nothing.
fn tell(told: Told) {
    for told in told {
        let _ = told.send(());
    }
}

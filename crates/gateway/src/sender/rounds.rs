use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tidegate_domain::{
    Advanced, BATCH_BYTES_MAX, Claim, ClaimRequest, Extension, Ledger, LedgerError, MessageId, Outcome,
    Settled, Settlement,
};
use tokio::time::Instant;

use super::Sender;
use super::arrivals::ClaimError;
use super::attempt::{attempt, handed_back, hopeless};
use super::backoff::Backoff;
use crate::stop::Stop;
use crate::waits::{now_or_later, sleep_until};

/// How long a claim waits for work; also how long an idle sender takes to notice a stop.
const CLAIM_WAIT_MS: u64 = 500;

/// Bytes of bodies beyond which nothing more is claimed until an attempt has ended. A claim may pass it once, by what
/// one answer of the ledger holds.
const BYTES_UNDER_WAY_MAX: usize = 32 << 20;

/// How often an open breaker is asked again.
const BREAKER_STEP: Duration = Duration::from_millis(500);

type Claimed = Result<Vec<Claim>, ClaimError>;
type SettledBatch = (Vec<Settlement>, Result<Vec<Advanced>, LedgerError>);

/// One claim, any number of attempts and one settle call under way at the same time, all in one task: what
/// ends while a settle call runs goes into the next one, so batches grow with the load.
///
/// Nothing here is dropped while the ledger may be acting on it: a claim under way is always awaited, since
/// its messages are leased whether or not the answer is read.
pub struct Rounds {
    sender: Sender,
    stop: Stop,
    stopped_at: Option<Instant>,
    claiming: Option<BoxFuture<'static, Claimed>>,
    /// The last claim got less than it asked for: no other recipient waits.
    claim_fell_short: bool,
    claim_max: usize,
    attempts: FuturesUnordered<BoxFuture<'static, Settlement>>,
    /// What is being tried: the token of its lease, and how many bytes its body takes.
    tokens: HashMap<MessageId, (u64, usize)>,
    bytes_under_way: usize,
    ended: Vec<Settlement>,
    settling: Option<BoxFuture<'static, SettledBatch>>,
    settling_len: usize,
    claim_backoff: Backoff,
    settle_backoff: Backoff,
}

impl Rounds {
    pub fn new(sender: Sender, stop: Stop) -> Self {
        Self {
            sender,
            stop,
            stopped_at: None,
            claiming: None,
            claim_fell_short: false,
            claim_max: 0,
            attempts: FuturesUnordered::new(),
            tokens: HashMap::new(),
            bytes_under_way: 0,
            ended: Vec::new(),
            settling: None,
            settling_len: 0,
            claim_backoff: Backoff::new("claim"),
            settle_backoff: Backoff::new("settle"),
        }
    }

    /// Returns after a stop, when everything claimed is settled or handed back, or the time for that is over.
    pub async fn run(self) {
        let arrivals = self.sender.arrivals.clone();
        self.work().await;
        if let Some(arrivals) = arrivals {
            arrivals.leave().await;
        }
    }

    async fn work(mut self) {
        loop {
            self.begin_settle();
            self.begin_claim();
            if self.stopped_at.is_some() && self.idle() {
                return;
            }
            let deadline = self.stopped_at.map(|at| at + self.sender.drain_timeout);
            tokio::select! {
                Some(settlement) = self.attempts.next() => self.attempt_ended(settlement),
                claimed = now_or_later(&mut self.claiming) => self.claim_ended(claimed),
                settled = now_or_later(&mut self.settling) => self.settle_ended(settled),
                () = self.stop.wait(), if self.stopped_at.is_none() => self.stopped_at = Some(Instant::now()),
                () = sleep_until(deadline) => return self.hand_back().await,
            }
        }
    }

    fn idle(&self) -> bool {
        self.claiming.is_none()
            && self.attempts.is_empty()
            && self.ended.is_empty()
            && self.settling.is_none()
    }

    /// Room for claims: everything claimed and not yet settled counts, so a ledger that does not settle stops
    /// the claims too.
    fn room(&self) -> usize {
        if self.bytes_under_way >= BYTES_UNDER_WAY_MAX {
            return 0;
        }
        let open = self.attempts.len() + self.ended.len() + self.settling_len;
        self.sender.settings.concurrency.saturating_sub(open).min(self.sender.settings.batch)
    }

    fn begin_claim(&mut self) {
        if self.claiming.is_some() || self.room() == 0 || self.stopped_at.is_some() {
            return;
        }
        let max = self.room().min(self.sender.channel.permits());
        self.claim_max = max;
        if max == 0 {
            // The breaker is open. Others of the channel may close it sooner than it would by itself.
            let wait = self.sender.channel.wait().clamp(BREAKER_STEP / 10, BREAKER_STEP);
            let mut stop = self.stop.clone();
            let waiting = async move {
                let _ = tokio::time::timeout(wait, stop.wait()).await;
                Ok(Vec::new())
            };
            self.claiming = Some(waiting.boxed());
            return;
        }
        let ledger = self.sender.ledger.clone();
        let (queue, lease_ms) = (self.sender.queue.clone(), self.sender.settings.lease_ms);
        let request = ClaimRequest { queue, max, lease_ms, wait_ms: CLAIM_WAIT_MS };
        let (delay, mut stop) = (self.claim_backoff.delay(), self.stop.clone());
        let arrivals = self.sender.arrivals.clone();
        self.claiming = Some(
            async move {
                // A timer takes up to a millisecond even for nothing; that would be the pace of every round.
                if !delay.is_zero() && tokio::time::timeout(delay, stop.wait()).await.is_ok() {
                    return Ok(Vec::new());
                }
                match arrivals {
                    Some(arrivals) => arrivals.claim(max, lease_ms, CLAIM_WAIT_MS).await,
                    None => Ok(ledger.claim(request).await?),
                }
            }
            .boxed(),
        );
    }

    fn claim_ended(&mut self, claimed: Claimed) {
        self.claiming = None;
        match claimed {
            Ok(claims) => {
                self.claim_backoff.succeeded();
                let bytes: usize =
                    claims.iter().filter_map(|claim| claim.body.as_ref()).map(Bytes::len).sum();
                // The bound in bytes may have ended it, and then others wait.
                self.claim_fell_short = claims.len() < self.claim_max && bytes < BATCH_BYTES_MAX / 2;
                claims.into_iter().for_each(|claim| self.begin_attempt(claim));
            }
            Err(error) => self.claim_backoff.failed(&error),
        }
    }

    fn begin_attempt(&mut self, claim: Claim) {
        if self.stopped_at.is_some() {
            self.ended.push(handed_back(&claim));
            return;
        }
        let (settings, body) = (&self.sender.settings, claim.body.clone());
        match (hopeless(&claim, &settings.retry), body) {
            (None, Some(body)) => {
                self.bytes_under_way += body.len();
                // One that was tried before, and whose lease ended meanwhile, is there twice; the newer one counts.
                if let Some((_, bytes)) = self.tokens.insert(claim.id, (claim.token, body.len())) {
                    self.bytes_under_way -= bytes;
                }
                self.attempts.push(attempt(self.sender.clone(), claim, body).boxed());
            }
            (settlement, _) => self.ended.extend(settlement),
        }
    }

    /// Takes along what else has ended by now, so that one settle call serves all of it.
    fn attempt_ended(&mut self, settlement: Settlement) {
        let mut next = Some(settlement);
        while let Some(settlement) = next {
            if let Some((_, bytes)) = self.tokens.remove(&settlement.id) {
                self.bytes_under_way -= bytes;
            }
            self.ended.push(settlement);
            next = self.attempts.next().now_or_never().flatten();
        }
    }

    fn begin_settle(&mut self) {
        if self.settling.is_some() || self.ended.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut self.ended);
        self.settling_len = batch.len();
        let (ledger, delay) = (self.sender.ledger.clone(), self.settle_backoff.delay());
        let (queues, lease_ms) = (self.sender.queues.clone(), self.sender.settings.lease_ms);
        let goes_on = self.goes_on(batch.len());
        self.settling = Some(
            async move {
                if !delay.is_zero() {
                    // A ledger without room on its disk still lets leases last longer; were they to end, what has
                    // been delivered would be delivered again.
                    let extend = |one: &Settlement| Extension { id: one.id, token: one.token, lease_ms };
                    let _ = queues.extend(batch.iter().map(extend).collect()).await;
                    tokio::time::sleep(delay).await;
                }
                let settled = settle(&*ledger, &batch, goes_on.then_some(lease_ms)).await;
                (batch, settled)
            }
            .boxed(),
        );
    }

    /// Whether recipients' next messages are taken along with the settlements: only while no other recipient waits, since
    /// lanes and due times have no say in it, and with a place left over, so that a claim sees when that changes. For many at
    /// once a claim of its own costs the ledger less; over a bus it would cost each of them the whole way.
    fn goes_on(&self, settlements: usize) -> bool {
        (self.sender.arrivals.is_some() || settlements <= GOES_ON_MAX)
            && self.stopped_at.is_none()
            && self.claim_fell_short
            && self.room() > 0
            && self.sender.channel.permits() > 0
    }

    /// A batch that failed is settled again: fencing makes a repetition harmless, and until it succeeds the
    /// messages count against the room. Damage is not repeated; the leases decide then.
    fn settle_ended(&mut self, (batch, settled): SettledBatch) {
        self.settling = None;
        self.settling_len = 0;
        match settled {
            Ok(mut results) => {
                self.settle_backoff.succeeded();
                let next: Vec<Claim> =
                    results.iter_mut().filter_map(|advanced| advanced.next.take()).collect();
                if let Some(arrivals) = &self.sender.arrivals {
                    arrivals.copy(&next);
                }
                next.into_iter().for_each(|claim| self.begin_attempt(claim));
                // A quick recipient's ack ends the message before its sender does: nothing is lost with that lease.
                let is_done = |(settlement, advanced): &(&Settlement, &Advanced)| {
                    advanced.settled == Settled::Done
                        || matches!(settlement.outcome, Outcome::Accepted { .. })
                };
                let (done, lost): (Vec<_>, Vec<_>) = batch.iter().zip(&results).partition(is_done);
                done.iter().for_each(|(settlement, _)| self.sender.tally.settled(settlement));
                metrics::counter!("tidegate_sender_lost_leases_total").increment(lost.len() as u64);
            }
            Err(error @ LedgerError::Corrupt(_)) => {
                tracing::error!(%error, settlements = batch.len(), "settlements are given up");
                self.settle_backoff.failed(&error);
            }
            Err(error) => {
                self.settle_backoff.failed(&error);
                self.ended.extend(batch);
            }
        }
    }

    /// The time is over: attempts under way go back as failed ones, since the provider may have seen them.
    async fn hand_back(mut self) {
        tracing::warn!(
            attempts = self.attempts.len(),
            "delivery attempts cut off by the stop; they will be retried"
        );
        self.attempts.clear();
        let reason = "cut off when the gateway stopped";
        self.ended.extend(self.tokens.drain().map(|(id, (token, _))| Settlement {
            id,
            token,
            outcome: Outcome::Retry { delay_ms: 0, reason: reason.to_owned() },
            latency_ms: u64::try_from(self.sender.drain_timeout.as_millis()).unwrap_or(u64::MAX),
        }));
        self.begin_settle();
        let last = Instant::now() + LAST_CALL;
        while !self.idle() {
            tokio::select! {
                claimed = now_or_later(&mut self.claiming) => self.claim_ended(claimed),
                settled = now_or_later(&mut self.settling) => self.settle_ended(settled),
                () = tokio::time::sleep_until(last) => return,
            }
            self.begin_settle();
        }
    }
}

/// Settles all at once, and leases the recipients' next messages for so long, if there is to be a next. Where one settlement
/// meets a defect it must not take the others along, whose messages have been sent: then each is settled alone, and only
/// that one is left to its lease.
pub async fn settle(
    ledger: &dyn Ledger,
    batch: &[Settlement],
    next_lease_ms: Option<u64>,
) -> Result<Vec<Advanced>, LedgerError> {
    match settle_together(ledger, batch.to_vec(), next_lease_ms).await {
        Err(LedgerError::Defect(_)) => {}
        settled => return settled,
    }
    let mut results = Vec::with_capacity(batch.len());
    for one in batch {
        match settle_together(ledger, vec![one.clone()], None).await {
            Ok(settled) => results.extend(settled),
            Err(error @ LedgerError::Defect(_)) => {
                tracing::error!(message_id = %one.id, outcome = ?one.outcome, %error, "a settlement is given up");
                results.push(Advanced { settled: Settled::LostLease, next: None });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(results)
}

async fn settle_together(
    ledger: &dyn Ledger,
    batch: Vec<Settlement>,
    next_lease_ms: Option<u64>,
) -> Result<Vec<Advanced>, LedgerError> {
    if let Some(lease_ms) = next_lease_ms {
        return ledger.advance(batch, lease_ms).await;
    }
    let alone = |settled| Advanced { settled, next: None };
    Ok(ledger.settle(batch).await?.into_iter().map(alone).collect())
}

/// Without a bus, at most this many settlements of one call take their recipients' next messages along. Too small, and a few
/// busy recipients wait for a claim after each message; too large, and 1,000 recipients on PostgreSQL are half as fast.
const GOES_ON_MAX: usize = 32;
/// For the ledger to take what is handed back. Should it fail to, the leases end by themselves.
const LAST_CALL: Duration = Duration::from_secs(2);

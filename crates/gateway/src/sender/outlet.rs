use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_domain::{Breaker, BreakerRule, BreakerState, Change, Channel, Clock, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::randomness::Randomness;

/// A channel with what all its queues share: room for attempts, and a breaker in front of its provider. Other
/// channels have their own, so that a slow or broken provider holds nobody else back.
#[derive(Debug)]
pub struct SharedChannel {
    pub channel: Arc<dyn Channel>,
    concurrency: usize,
    room: Arc<Semaphore>,
    breaker: Mutex<Breaker>,
    clock: Arc<dyn Clock>,
    changes: [AtomicU64; 3],
    /// When the log was last told of an attempt that could not begin.
    told_at: Mutex<Option<Timestamp>>,
    randomness: Randomness,
    jitter_percent: u64,
}

/// Between two lines of the log about attempts that can't begin.
const TELL_PERIOD_MS: u64 = 10_000;

/// How a channel's breaker stands, and how often it has changed to each state.
#[derive(Debug, Clone)]
pub struct BreakerReport {
    pub channel: &'static str,
    pub state: BreakerState,
    pub changes: Vec<(BreakerState, u64)>,
    pub attempts_under_way: usize,
}

impl SharedChannel {
    pub fn new(
        channel: Arc<dyn Channel>,
        concurrency: usize,
        rule: BreakerRule,
        jitter_percent: u64,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            channel,
            concurrency,
            room: Arc::new(Semaphore::new(concurrency.min(Semaphore::MAX_PERMITS))),
            breaker: Mutex::new(Breaker::new(rule)),
            clock,
            changes: Default::default(),
            told_at: Mutex::default(),
            randomness: Randomness::new(),
            jitter_percent,
        }
    }

    /// By the clock that leases are told in.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// How many attempts may be claimed for now. With none, `wait` says when to ask again at the latest.
    pub fn permits(&self) -> usize {
        self.breaker().permits(self.clock.now())
    }

    pub fn wait(&self) -> Duration {
        Duration::from_millis(self.breaker().wait_ms(self.clock.now()))
    }

    /// Room for one attempt, in the order of asking: no queue of the channel waits longer than the others' claims.
    pub async fn enter(&self, within: Duration) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = self.room.clone().try_acquire_owned() {
            return Some(permit);
        }
        let waiting = self.room.clone().acquire_owned();
        tokio::time::timeout(within, waiting).await.ok().and_then(Result::ok)
    }

    /// False while the breaker keeps attempts back.
    pub fn start(&self) -> bool {
        let now = self.clock.now();
        let mut breaker = self.breaker();
        if breaker.permits(now) == 0 {
            return false;
        }
        let change = breaker.started(now);
        drop(breaker);
        self.note(change);
        true
    }

    pub fn record(&self, success: bool) {
        let change = self.breaker().record(self.clock.now(), success);
        self.note(change);
    }

    /// The attempt that has started never began, for want of something here. The log hears of it now and then: a
    /// whole queue may meet the same want.
    pub fn withdraw(&self, reason: &str) {
        self.breaker().withdrawn();
        let now = self.clock.now();
        let mut told_at = self.told_at.lock().unwrap_or_else(PoisonError::into_inner);
        if told_at.is_some_and(|at| now >= at && now.since_ms(at) < TELL_PERIOD_MS) {
            return;
        }
        *told_at = Some(now);
        let channel = self.channel.name();
        tracing::warn!(channel, reason, "attempts can't begin: messages wait, no attempts are spent");
    }

    /// A retry's delay with the share of chance that the settings allow: a crowd that failed together does not
    /// come back together.
    pub fn spread(&self, delay_ms: u64) -> u64 {
        let most = delay_ms / 100 * self.jitter_percent + delay_ms % 100 * self.jitter_percent / 100;
        delay_ms.saturating_add(if most == 0 { 0 } else { self.randomness.next() % (most + 1) })
    }

    pub fn report(&self) -> BreakerReport {
        let changes =
            BreakerState::ALL.map(|state| (state, self.changes[place(state)].load(Ordering::Relaxed)));
        BreakerReport {
            channel: self.channel.name(),
            state: self.breaker().state(),
            changes: changes.to_vec(),
            attempts_under_way: self.concurrency.saturating_sub(self.room.available_permits()),
        }
    }

    fn note(&self, change: Option<Change>) {
        let Some(Change { from, to }) = change else { return };
        self.changes[place(to)].fetch_add(1, Ordering::Relaxed);
        let channel = self.channel.name();
        let (from, to_text) = (from.as_str(), to.as_str());
        match to {
            BreakerState::Open => tracing::warn!(
                channel,
                from,
                to = to_text,
                "the breaker opened: messages wait, no attempts are spent"
            ),
            _ => tracing::info!(channel, from, to = to_text, "the breaker changed"),
        }
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place(state: BreakerState) -> usize {
    match state {
        BreakerState::Closed => 0,
        BreakerState::Open => 1,
        BreakerState::HalfOpen => 2,
    }
}

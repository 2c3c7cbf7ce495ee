use crate::Timestamp;

/// Keeps messages from a provider that fails, so that they wait without spending their attempts.
///
/// Closed, it lets everything pass and remembers the last `window` outcomes. When **more than** `failure_percent`
/// of a full window failed (six of ten by default: the rate *exceeds* one half) it opens. After `open_ms` it lets
/// `probes` attempts through: when all of them succeed it closes and forgets what was, and the first that fails
/// opens it again for the whole `open_ms`.
///
/// An outcome is a failure when the provider is unwell: what would be tried later. A refusal of one message is
/// the answer of a provider that works, and counts as a success.
///
/// Who uses it asks [`permits`](Self::permits) before claiming, says [`started`](Self::started) for each attempt
/// and [`record`](Self::record) for each outcome, or [`withdrawn`](Self::withdrawn) when there is none. The first two return a change of state, for the log and the metrics.
#[derive(Debug, Clone)]
pub struct Breaker {
    rule: BreakerRule,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerRule {
    /// How many outcomes are judged, the last ones. From 1 to 128; what lies outside is brought inside.
    pub window: u32,
    /// Opens above it: 100 never does.
    pub failure_percent: u32,
    pub open_ms: u64,
    /// At least 1.
    pub probes: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    Closed,
    Open,
    HalfOpen,
}

/// From one state to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    pub from: BreakerState,
    pub to: BreakerState,
}

#[derive(Debug, Clone)]
enum Phase {
    Closed(Outcomes),
    Open {
        since: Timestamp,
    },
    /// From the first probe on.
    HalfOpen {
        since: Timestamp,
        started: u32,
        succeeded: u32,
    },
}

/// The last outcomes: a bit each, the youngest lowest, set for a failure.
#[derive(Debug, Clone, Default)]
struct Outcomes {
    bits: u128,
    seen: u32,
}

const WINDOW_MAX: u32 = 128;

impl Default for BreakerRule {
    fn default() -> Self {
        Self { window: 10, failure_percent: 50, open_ms: 30_000, probes: 3 }
    }
}

impl BreakerState {
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::HalfOpen];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
        }
    }
}

impl Breaker {
    pub fn new(rule: BreakerRule) -> Self {
        let rule = BreakerRule {
            window: rule.window.clamp(1, WINDOW_MAX),
            failure_percent: rule.failure_percent.min(100),
            open_ms: rule.open_ms,
            probes: rule.probes.max(1),
        };
        Self { rule, phase: Phase::Closed(Outcomes::default()) }
    }

    /// How many attempts may start now; `usize::MAX` while closed.
    pub fn permits(&mut self, now: Timestamp) -> usize {
        self.bear_with_the_clock(now);
        match &self.phase {
            Phase::Closed(_) => usize::MAX,
            Phase::Open { .. } | Phase::HalfOpen { .. } if self.wait_over(now) => self.rule.probes as usize,
            Phase::Open { .. } => 0,
            Phase::HalfOpen { started, .. } => self.rule.probes.saturating_sub(*started) as usize,
        }
    }

    /// An attempt has started. The first one after the wait makes the breaker half-open.
    pub fn started(&mut self, now: Timestamp) -> Option<Change> {
        self.bear_with_the_clock(now);
        let over = self.wait_over(now);
        match &mut self.phase {
            Phase::HalfOpen { started, .. } if !over => {
                *started = started.saturating_add(1);
                None
            }
            // Probes whose outcome nobody ever told: another round of them.
            Phase::Open { .. } | Phase::HalfOpen { .. } if over => {
                self.turn(Phase::HalfOpen { since: now, started: 1, succeeded: 0 })
            }
            Phase::Closed(_) | Phase::Open { .. } | Phase::HalfOpen { .. } => None,
        }
    }

    /// An attempt that was said to have started never began: another probe may take its place.
    pub fn withdrawn(&mut self) {
        if let Phase::HalfOpen { started, .. } = &mut self.phase {
            *started = started.saturating_sub(1);
        }
    }

    /// An attempt has ended. While open this changes nothing: the attempt began before.
    pub fn record(&mut self, now: Timestamp, success: bool) -> Option<Change> {
        self.bear_with_the_clock(now);
        let rule = self.rule;
        match &mut self.phase {
            Phase::Closed(outcomes) => {
                outcomes.push(!success, rule.window);
                if outcomes.judged_bad(&rule) { self.turn(Phase::Open { since: now }) } else { None }
            }
            Phase::Open { .. } => None,
            Phase::HalfOpen { .. } if !success => self.turn(Phase::Open { since: now }),
            Phase::HalfOpen { started, succeeded, .. } => {
                // Attempts from before the breaker opened may end now; they can't stand for a probe not yet sent.
                *succeeded = succeeded.saturating_add(1).min(*started);
                if *succeeded >= rule.probes { self.turn(Phase::Closed(Outcomes::default())) } else { None }
            }
        }
    }

    /// Open until the first probe starts, even when one may.
    pub fn state(&self) -> BreakerState {
        match self.phase {
            Phase::Closed(_) => BreakerState::Closed,
            Phase::Open { .. } => BreakerState::Open,
            Phase::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// How long until [`permits`](Self::permits) allows something by itself; 0 when it does now. An outcome may
    /// change it sooner.
    pub fn wait_ms(&mut self, now: Timestamp) -> u64 {
        match (self.permits(now), &self.phase) {
            (0, Phase::Open { since } | Phase::HalfOpen { since, .. }) => {
                self.rule.open_ms.saturating_sub(now.since_ms(*since))
            }
            _ => 0,
        }
    }

    fn wait_over(&self, now: Timestamp) -> bool {
        match self.phase {
            Phase::Closed(_) => false,
            Phase::Open { since } | Phase::HalfOpen { since, .. } => now.since_ms(since) >= self.rule.open_ms,
        }
    }

    /// A clock that was set back must not keep the breaker open longer than `open_ms` from now.
    fn bear_with_the_clock(&mut self, now: Timestamp) {
        if let Phase::Open { since } | Phase::HalfOpen { since, .. } = &mut self.phase {
            *since = (*since).min(now);
        }
    }

    fn turn(&mut self, phase: Phase) -> Option<Change> {
        let from = self.state();
        self.phase = phase;
        let to = self.state();
        (from != to).then_some(Change { from, to })
    }
}

impl Outcomes {
    fn push(&mut self, failed: bool, window: u32) {
        self.bits = self.bits << 1 | u128::from(failed);
        self.bits &= u128::MAX >> (WINDOW_MAX - window);
        self.seen = self.seen.saturating_add(1).min(window);
    }

    /// Only a full window is judged: one failure out of one says little.
    fn judged_bad(&self, rule: &BreakerRule) -> bool {
        self.seen >= rule.window && self.bits.count_ones() * 100 > rule.failure_percent * rule.window
    }
}

#[cfg(test)]
mod tests;

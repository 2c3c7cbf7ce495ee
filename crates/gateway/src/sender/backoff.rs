use std::fmt::Display;
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);

/// How one kind of call fares: how long to wait before the next, with a log line when that
/// changes and not for every failure.
#[derive(Debug)]
pub struct Backoff {
    call: &'static str,
    delay: Duration,
}

impl Backoff {
    pub fn new(call: &'static str) -> Self {
        Self { call, delay: Duration::ZERO }
    }

    /// Zero while all is well.
    pub fn delay(&self) -> Duration {
        self.delay
    }

    pub fn succeeded(&mut self) {
        if !self.delay.is_zero() {
            tracing::info!(call = self.call, "calls succeed again");
            self.delay = Duration::ZERO;
        }
    }

    pub fn failed(&mut self, error: &impl Display) {
        metrics::counter!("tidegate_sender_ledger_errors_total", "call" => self.call).increment(1);
        if self.delay.is_zero() {
            tracing::warn!(call = self.call, %error, "calls fail; trying again");
        }
        self.delay = (self.delay * 2).clamp(FIRST, LONGEST);
    }
}

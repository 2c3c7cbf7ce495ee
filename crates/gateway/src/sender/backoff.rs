use std::fmt::Display;
use std::time::Duration;

use tidegate_domain::{BusError, LedgerError};

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);

/// How one kind of call fares: how long to wait before the next, with a log line when that
/// changes and not for every failure.
#[derive(Debug)]
pub struct Backoff {
    call: &'static str,
    delay: Duration,
    /// Failures since the last success.
    failures: u32,
}

/// What a call failed with.
pub trait Failure: Display {
    /// It is a mistake of this program, which another try does not mend.
    fn is_defect(&self) -> bool;
}

impl Failure for LedgerError {
    fn is_defect(&self) -> bool {
        matches!(self, Self::Defect(_))
    }
}

impl Failure for BusError {
    fn is_defect(&self) -> bool {
        false
    }
}

impl Backoff {
    pub fn new(call: &'static str) -> Self {
        Self { call, delay: Duration::ZERO, failures: 0 }
    }

    /// Zero while all is well.
    pub fn delay(&self) -> Duration {
        self.delay
    }

    pub fn succeeded(&mut self) {
        if !self.delay.is_zero() {
            tracing::info!(call = self.call, "calls succeed again");
            self.delay = Duration::ZERO;
            self.failures = 0;
        }
    }

    /// An outage is told once. A defect stays until it is mended, so it is told again, ever less often.
    pub fn failed(&mut self, error: &impl Failure) {
        metrics::counter!("tidegate_sender_ledger_errors_total", "call" => self.call).increment(1);
        self.failures = self.failures.saturating_add(1);
        if error.is_defect() && self.failures.is_power_of_two() {
            let failures = self.failures;
            tracing::error!(call = self.call, %error, failures, "calls meet a defect of this program; trying again");
        } else if self.delay.is_zero() {
            tracing::warn!(call = self.call, %error, "calls fail; trying again");
        }
        self.delay = (self.delay * 2).clamp(FIRST, LONGEST);
    }
}

use std::fmt;
use std::time::Duration;

use tidegate_testkit::load::Report;

/// What the lives have cost so far.
#[derive(Debug, Clone, Default)]
pub struct Toll {
    pub ends: usize,
    pub ends_in_recovery: usize,
    /// Times that the books did not balance at the end.
    pub unbalanced: usize,
    /// Messages handed over twice by one life: only a crash excuses a repetition.
    pub repeated: usize,
    pub report: Report,
    pub ready_after_max: Duration,
}

impl fmt::Display for Toll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ok, refused) = (self.report.statuses.get(&200), self.report.statuses.get(&429));
        write!(f, "{} answered 200, {} 429, ", ok.unwrap_or(&0), refused.unwrap_or(&0))?;
        write!(f, "{} unanswered, slowest start {:.0?}", self.report.unknown, self.ready_after_max)
    }
}

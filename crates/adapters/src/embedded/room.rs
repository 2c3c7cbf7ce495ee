use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_domain::LedgerError;

/// A share of the bound on admissions, given back when dropped. It travels with the batch that it was taken for: a
/// caller who gives up does not take that out of the writer's line.
#[derive(Debug)]
pub(super) struct Room {
    waiting: Arc<AtomicUsize>,
    size: usize,
}

impl Room {
    pub(super) fn take(waiting: &Arc<AtomicUsize>, size: usize, max: usize) -> Result<Self, LedgerError> {
        let before = waiting.fetch_add(size, Ordering::Relaxed);
        let room = Self { waiting: waiting.clone(), size };
        // A batch larger than the bound may pass alone, or it never would.
        if before > 0 && before.saturating_add(size) > max { Err(LedgerError::Overloaded) } else { Ok(room) }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.size, Ordering::Relaxed);
    }
}

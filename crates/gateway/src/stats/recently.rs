use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Something that was so a moment ago, and may be over since without anybody saying so.
#[derive(Debug, Default)]
pub struct Recently(Mutex<Option<Instant>>);

impl Recently {
    pub fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    pub fn is_over(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub fn was_within(&self, time: Duration) -> bool {
        let noted = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.is_some_and(|at| at.elapsed() < time)
    }
}

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_domain::LedgerError;
use tokio::time::Instant;

use crate::codes::{bounded, duration};
use crate::open::Core;

/// How many messages one statement looks at, and how many statements one sweep is for.
const SLICE: i32 = 5_000;
const SLICES: usize = 20;
/// A retired range that holds no more than this part of a whole one is put together with the next.
const LITTLE: i64 = 10;
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// When old messages may be taken on again: others were in the way, and they come first.
#[derive(Debug, Default)]
pub struct Pause(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failures: u32,
    until: Option<Instant>,
}

impl Pause {
    fn is_over(&self) -> bool {
        self.state().until.is_none_or(|until| until <= Instant::now())
    }

    fn end(&self) {
        *self.state() = State::default();
    }

    fn prolong(&self) -> Duration {
        let mut state = self.state();
        let pause = Duration::from_secs(1 << state.failures.min(6)).min(PAUSE_MAX);
        state.failures += 1;
        state.until = Some(Instant::now() + pause);
        pause
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Core {
    /// A bounded part of the work on messages that are old enough to go.
    pub async fn retire(&self) -> Result<(), LedgerError> {
        if !self.retiring.is_over() {
            return Ok(());
        }
        match self.retire_slices().await {
            Ok(()) => self.retiring.end(),
            Err(LedgerError::NoSpace(why)) => return Err(LedgerError::NoSpace(why)),
            Err(error) => {
                let pause = self.retiring.prolong();
                tracing::warn!(%error, ?pause, "old messages stay for now");
            }
        }
        Ok(())
    }

    async fn retire_slices(&self) -> Result<(), LedgerError> {
        let retention_ms = duration(self.options.retention_ms);
        let little = bounded(self.options.partition_messages) / LITTLE;
        if !self.is_so("SELECT begin_retirement($1, $2)", &[&retention_ms, &little]).await? {
            return Ok(());
        }
        for _ in 0..SLICES {
            if self.is_so("SELECT retire_slice($1, $2)", &[&retention_ms, &SLICE]).await?
                && self.is_so("SELECT end_retirement()", &[]).await?
            {
                tracing::info!("a range of old messages is dropped");
                break;
            }
        }
        Ok(())
    }

    async fn is_so(&self, sql: &str, params: crate::connection::Params<'_>) -> Result<bool, LedgerError> {
        let rows = self.write(sql, params).await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound_and_end_with_a_success() {
        let pause = Pause::default();
        assert!(pause.is_over());
        let pauses: Vec<u64> = (0..9).map(|_| pause.prolong().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert!(!pause.is_over());
        pause.end();
        assert!(pause.is_over());
        assert_eq!(pause.prolong().as_secs(), 1);
    }
}

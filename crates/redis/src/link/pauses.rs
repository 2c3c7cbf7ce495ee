use std::time::Duration;

use tokio::time::Instant;

/// Between two attempts to reach Redis: the first, and the most.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A connection that did not last that long was no success, even if it answered a probe.
const LASTING: Duration = Duration::from_secs(5);

/// How long to wait before the next attempt to reach Redis: longer each time, until a connection has lasted.
#[derive(Debug)]
pub struct Pauses {
    next: Duration,
    connected: Option<Instant>,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { next: PAUSE_MIN, connected: None }
    }
}

impl Pauses {
    pub fn connected(&mut self) {
        self.connected = Some(Instant::now());
    }

    /// After a connection was given up: none if it has lasted, or if there was none.
    pub fn first(&mut self) -> Duration {
        if self.connected.take().is_some_and(|since| since.elapsed() < LASTING) {
            return self.next();
        }
        self.next = PAUSE_MIN;
        Duration::ZERO
    }

    /// After an attempt that failed.
    pub fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(PAUSE_MAX);
        pause
    }
}

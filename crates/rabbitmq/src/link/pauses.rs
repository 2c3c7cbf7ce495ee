use std::time::Duration;

/// Between two attempts to reach RabbitMQ: the first, and the most.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A connection that did not last that long was no success.
const LASTING: Duration = Duration::from_secs(5);

/// How long to wait before the next attempt: longer each time, until a connection has lasted.
#[derive(Debug)]
pub struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(PAUSE_MIN)
    }
}

impl Pauses {
    pub fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(PAUSE_MAX);
        pause
    }

    pub fn lasted(&mut self, connected: Duration) {
        if connected >= LASTING {
            self.0 = PAUSE_MIN;
        }
    }
}

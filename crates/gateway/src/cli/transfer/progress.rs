use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

const SHOWN_EVERY: Duration = Duration::from_millis(200);
const LOGGED_EVERY: Duration = Duration::from_secs(5);

/// How far it is: a line that is written over and over on a terminal, one in the log now and then elsewhere.
#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    total: u64,
    done: u64,
    begun: Instant,
    told: Instant,
    is_terminal: bool,
}

impl Progress {
    pub fn begin(what: &'static str, total: u64) -> Self {
        let (begun, is_terminal) = (Instant::now(), std::io::stderr().is_terminal());
        Self { what, total, done: 0, begun, told: begun, is_terminal }
    }

    pub fn add(&mut self, count: usize) {
        self.done += count as u64;
        let every = if self.is_terminal { SHOWN_EVERY } else { LOGGED_EVERY };
        if self.told.elapsed() >= every {
            self.told = Instant::now();
            self.tell();
        }
    }

    /// Leaves the terminal's line for what comes.
    pub fn end(&self) {
        self.tell();
        if self.is_terminal {
            eprintln!();
        }
    }

    fn tell(&self) {
        let text = describe(self.what, self.done, self.total, self.begun.elapsed());
        if self.is_terminal {
            // A terminal that is gone is no reason to stop.
            let _ = write!(std::io::stderr(), "\r{text}\x1b[K");
        } else {
            tracing::info!(done = self.done, total = self.total, "{text}");
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate for people to read")]
fn describe(what: &str, done: u64, total: u64, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64().max(0.001);
    let rate = (done as f64 / seconds) as u64;
    let percent = done.saturating_mul(100).checked_div(total).unwrap_or(100);
    let left = total.saturating_sub(done);
    let rest = match (left, rate) {
        (0, _) => format!("in {} s", elapsed.as_secs()),
        (_, 0) => "…".to_owned(),
        (left, rate) => format!("{} s left", left.div_ceil(rate)),
    };
    format!("{what} {done} of {total} ({percent} %), {rate}/s, {rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_told_by_the_rate_so_far() {
        let after = |done, seconds| describe("exported", done, 1_000, Duration::from_secs(seconds));
        assert_eq!(after(0, 1), "exported 0 of 1000 (0 %), 0/s, …");
        assert_eq!(after(250, 5), "exported 250 of 1000 (25 %), 50/s, 15 s left");
        assert_eq!(after(1_000, 20), "exported 1000 of 1000 (100 %), 50/s, in 20 s");
        let nothing = describe("imported", 0, 0, Duration::ZERO);
        assert_eq!(nothing, "imported 0 of 0 (100 %), 0/s, in 0 s");
    }
}

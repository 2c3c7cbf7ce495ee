use std::time::Duration;

use tidegate_domain::QueueName;
use tokio::time::Instant;

use crate::consumer::Stray;

/// So many lines in a while, and a count of the rest: whoever floods a queue must not flood the log.
const LINES_MAX: u32 = 10;
const WHILE: Duration = Duration::from_secs(10);
const REASON_CHARS_MAX: usize = 200;

/// Tells of records that can't be read.
#[derive(Debug)]
pub struct Complaints {
    since: Instant,
    lines: u32,
    unsaid: u64,
}

impl Default for Complaints {
    fn default() -> Self {
        Self { since: Instant::now(), lines: 0, unsaid: 0 }
    }
}

impl Complaints {
    pub fn malformed(&mut self, queue: &QueueName, stray: &Stray) {
        metrics::counter!("tidegate_bus_malformed_total", "bus" => "rabbitmq", "queue" => queue.to_string())
            .increment(1);
        let Some(unsaid) = self.may_speak(Instant::now()) else { return };
        let (name, delivery_tag, reason) = (stray.name.as_str(), stray.tag, without_content(&stray.reason.0));
        tracing::warn!(
            queue = name,
            delivery_tag,
            reason,
            unsaid,
            "a record can't be read: it is dead-lettered"
        );
    }

    /// How many were passed over since the last line, or nothing: silence.
    fn may_speak(&mut self, now: Instant) -> Option<u64> {
        if now.duration_since(self.since) >= WHILE {
            (self.since, self.lines) = (now, 0);
        }
        if self.lines == LINES_MAX {
            self.unsaid += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.unsaid))
    }
}

/// Parsers quote what they stumble over.
fn without_content(reason: &str) -> String {
    let whole = match (reason.find('"'), reason.rfind('"')) {
        (Some(from), Some(to)) if from < to => format!("{}…{}", &reason[..from], &reason[to + 1..]),
        _ => reason.to_owned(),
    };
    whole.chars().take(REASON_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_without_what_the_record_says() {
        assert_eq!(without_content(r#"id: "my \" secret" makes no sense"#), "id: … makes no sense");
        assert_eq!(without_content("missing field `id` at line 1"), "missing field `id` at line 1");
        assert_eq!(without_content(&"x".repeat(999)).len(), REASON_CHARS_MAX);
    }

    #[test]
    fn a_flood_is_summed_up() {
        let mut complaints = Complaints::default();
        let begin = complaints.since;
        let said: Vec<_> = (0..100).filter_map(|_| complaints.may_speak(begin)).collect();
        assert_eq!(said, vec![0; 10]);
        assert_eq!(complaints.may_speak(begin + WHILE), Some(90));
    }
}

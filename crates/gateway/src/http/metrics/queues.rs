use std::fmt::Write as _;

use tidegate_domain::{BreakerState, Lane, QueueCounts};

use super::family;
use crate::sender::SharedChannel;
use crate::stats::{Rates, Stats, Tallied};

type Reading<T> = fn(&T) -> u64;

/// How deep each queue is.
pub fn write_queues(text: &mut String, queues: &[QueueCounts]) {
    family(text, "tidegate_queue_depth", "gauge");
    for queue in queues {
        for lane in Lane::ALL {
            let (name, depth) = (&queue.queue, queue.depth[lane.index()]);
            let _ =
                writeln!(text, "tidegate_queue_depth{{queue=\"{name}\",lane=\"{}\"}} {depth}", lane.as_str());
        }
    }
    let gauges: [(&str, Reading<QueueCounts>); 2] =
        [("leased", |queue| queue.leased), ("paused", |queue| queue.paused.into())];
    for (gauge, value) in gauges {
        family(text, &format!("tidegate_queue_{gauge}"), "gauge");
        for queue in queues {
            let _ = writeln!(text, "tidegate_queue_{gauge}{{queue=\"{}\"}} {}", queue.queue, value(queue));
        }
    }
}

/// What became of attempts, in this process, and the rates of the last minute.
pub fn write_stats(text: &mut String, stats: &Stats) {
    let all = stats.all();
    let counters: [(&str, Reading<Tallied>); 5] = [
        ("delivered", |tallied| tallied.delivered),
        ("accepted", |tallied| tallied.accepted),
        ("retried", |tallied| tallied.retried),
        ("dead", |tallied| tallied.dead),
        ("processing_ms", |tallied| tallied.processing_ms),
    ];
    for (name, value) in counters {
        family(text, &format!("tidegate_queue_{name}_total"), "counter");
        for (queue, tallied) in &all {
            let _ = writeln!(text, "tidegate_queue_{name}_total{{queue=\"{queue}\"}} {}", value(tallied));
        }
    }
    let Rates { processed_per_second, processing_ms_average, retry_rate, failure_rate } = stats.total_rates();
    for (name, value) in [
        ("processed_per_second", processed_per_second),
        ("processing_ms_average", processing_ms_average),
        ("retry_rate", retry_rate),
        ("failure_rate", failure_rate),
    ] {
        family(text, &format!("tidegate_{name}"), "gauge");
        let _ = writeln!(text, "tidegate_{name} {value}");
    }
}

pub fn write_breakers<'a>(text: &mut String, channels: impl Iterator<Item = &'a SharedChannel>) {
    let reports: Vec<_> = channels.map(SharedChannel::report).collect();
    family(text, "tidegate_breaker_state", "gauge");
    for report in &reports {
        for state in BreakerState::ALL {
            let (channel, is) = (report.channel, u8::from(report.state == state));
            let _ = writeln!(
                text,
                "tidegate_breaker_state{{channel=\"{channel}\",state=\"{}\"}} {is}",
                state.as_str()
            );
        }
    }
    family(text, "tidegate_breaker_changes_total", "counter");
    for report in &reports {
        for (to, count) in &report.changes {
            let (channel, to) = (report.channel, to.as_str());
            let _ =
                writeln!(text, "tidegate_breaker_changes_total{{channel=\"{channel}\",to=\"{to}\"}} {count}");
        }
    }
    family(text, "tidegate_attempts_under_way", "gauge");
    for report in &reports {
        let (channel, count) = (report.channel, report.attempts_under_way);
        let _ = writeln!(text, "tidegate_attempts_under_way{{channel=\"{channel}\"}} {count}");
    }
}

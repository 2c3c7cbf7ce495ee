mod queues;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use tidegate_domain::limits::Policies;
use tidegate_domain::{Counts, Lane};
use tokio::time::timeout;

use super::Gateway;

/// Shorter than any scraper waits.
const BOOKS_WITHIN: Duration = Duration::from_secs(3);

/// `GET /metrics`: what happened in this process, then the ledger's books as they stand now, unless it is away: then of all
/// times somebody wants to know the rest.
///
/// The books are written out directly: they are the ledger's totals and outlive the process, and two gateways
/// in one process (as in tests) share the recorder but not the ledger.
pub async fn render(State(gateway): State<Arc<Gateway>>) -> Response {
    let books = async { tokio::try_join!(gateway.ledger.counts(), gateway.queues.queue_counts()) };
    let books = timeout(BOOKS_WITHIN, books).await.ok().and_then(Result::ok);
    let mut text = gateway.metrics.0.render();
    family(&mut text, "tidegate_ledger_up", "gauge");
    let _ = writeln!(text, "tidegate_ledger_up {}", u8::from(books.is_some()));
    if let Some((counts, queues)) = &books {
        write_counts(&mut text, counts);
        queues::write_queues(&mut text, queues);
    }
    write_policies(&mut text, &gateway.policies.engine);
    if let Some(accelerated) = &gateway.accelerated {
        family(&mut text, "tidegate_quota_cache_up", "gauge");
        let _ = writeln!(text, "tidegate_quota_cache_up {}", u8::from(!accelerated.is_degraded()));
    }
    if let Some(bus) = &gateway.bus {
        family(&mut text, "tidegate_bus_up", "gauge");
        let _ = writeln!(text, "tidegate_bus_up{{bus=\"{}\"}} {}", bus.name(), u8::from(!bus.is_away()));
    }
    queues::write_stats(&mut text, &gateway.stats);
    queues::write_breakers(&mut text, gateway.channels.iter().map(AsRef::as_ref));
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

fn write_counts(text: &mut String, counts: &Counts) {
    let totals = [
        ("admitted", "counter", counts.admitted),
        ("delivered", "counter", counts.delivered),
        // A dead letter that is requeued or removed is none any more.
        ("dead", "gauge", counts.dead),
        ("expired", "counter", counts.expired),
        ("deleted", "counter", counts.deleted),
    ];
    for (name, kind, value) in totals {
        family(text, &format!("tidegate_messages_{name}_total"), kind);
        let _ = writeln!(text, "tidegate_messages_{name}_total {value}");
    }
    for (name, value) in [("pending", counts.pending), ("leased", counts.leased)] {
        family(text, &format!("tidegate_messages_{name}"), "gauge");
        let _ = writeln!(text, "tidegate_messages_{name} {value}");
    }
    family(text, "tidegate_messages_depth", "gauge");
    for lane in Lane::ALL {
        let depth = counts.depth[lane.index()];
        let _ = writeln!(text, "tidegate_messages_depth{{lane=\"{}\"}} {depth}", lane.as_str());
    }
    family(text, "tidegate_conservation_balanced", "gauge");
    let _ = writeln!(text, "tidegate_conservation_balanced {}", u8::from(counts.balanced()));
}

fn write_policies(text: &mut String, policies: &Policies) {
    family(text, "tidegate_policy_total", "counter");
    for known in policies.in_force().iter() {
        let (name, outcomes) = (&known.policy.name, known.tally.outcomes());
        for (outcome, count) in [
            ("allowed", outcomes.allowed),
            ("denied", outcomes.denied),
            ("degraded", outcomes.degraded),
            ("shadow_denied", outcomes.shadow_denied),
            ("exempted", outcomes.exempted),
        ] {
            let _ =
                writeln!(text, "tidegate_policy_total{{policy=\"{name}\",outcome=\"{outcome}\"}} {count}");
        }
    }
    let counts = policies.buckets().counts();
    if let Some(buckets) = counts.buckets {
        family(text, "tidegate_policy_buckets", "gauge");
        let _ = writeln!(text, "tidegate_policy_buckets {buckets}");
    }
    for (name, kind, value) in [
        ("tidegate_policy_forced_evictions_total", "counter", counts.forced_evictions),
        ("tidegate_policy_store_failures_total", "counter", counts.failures),
        ("tidegate_policy_store_up", "gauge", u64::from(!counts.away)),
    ] {
        family(text, name, kind);
        let _ = writeln!(text, "{name} {value}");
    }
}

fn family(text: &mut String, name: &str, kind: &str) {
    let _ = writeln!(text, "# TYPE {name} {kind}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_books_say_whether_they_balance() {
        let mut text = String::new();
        let counts = Counts { admitted: 3, delivered: 1, pending: 2, depth: [0, 2, 0], ..Counts::default() };
        write_counts(&mut text, &counts);
        for line in [
            "# TYPE tidegate_messages_admitted_total counter\ntidegate_messages_admitted_total 3\n",
            "# TYPE tidegate_messages_dead_total gauge\ntidegate_messages_dead_total 0\n",
            "tidegate_messages_depth{lane=\"normal\"} 2\n",
            "tidegate_conservation_balanced 1\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        text.clear();
        write_counts(&mut text, &Counts { admitted: 4, ..counts });
        assert!(text.contains("tidegate_conservation_balanced 0\n"), "{text}");
    }
}

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value, json};
use tidegate_domain::{Lane, QueueCounts, QueueName};
use tidegate_edge::{ApiError, Principal};

use super::Gateway;
use super::answer;
use super::failure::from_ledger;
use crate::config::Outlet;
use crate::sender::BreakerReport;
use crate::stats::{Rates, Tallied};

/// `GET /api/v1/stats`: the books, how deep each queue is, how fast it empties, and how the breakers stand.
pub async fn show(State(gateway): State<Arc<Gateway>>, _principal: Principal) -> Result<Response, ApiError> {
    let counts = gateway.ledger.counts().await.map_err(from_ledger)?;
    let mut known = gateway.queues.queue_counts().await.map_err(from_ledger)?;
    add_configured(&gateway, &mut known);
    let (tallies, rates) = (gateway.stats.all(), gateway.stats.rates());
    let queues: Vec<Value> =
        known.iter().map(|queue| queue_stats(&gateway, queue, &tallies, &rates)).collect();
    let breakers: Vec<Value> = gateway.channels.iter().map(|channel| breaker(&channel.report())).collect();
    let totals = json!({
        "admitted": counts.admitted,
        "delivered": counts.delivered,
        "dead": counts.dead,
        "expired": counts.expired,
        "deleted": counts.deleted,
        "pending": counts.pending,
        "leased": counts.leased,
        "depth": lanes(counts.depth),
        "balanced": counts.balanced(),
    });
    let mut body = json!({ "totals": totals, "queues": queues, "breakers": breakers });
    put_rates(&mut body, gateway.stats.total_rates());
    answer::json(StatusCode::OK, &body)
}

/// Queues of the settings are there before their first message.
fn add_configured(gateway: &Gateway, known: &mut Vec<QueueCounts>) {
    for queue in gateway.queue_settings.named.keys() {
        if let Err(place) = known.binary_search_by(|counts| counts.queue.cmp(queue)) {
            known
                .insert(place, QueueCounts { queue: queue.clone(), paused: false, depth: [0; 3], leased: 0 });
        }
    }
}

fn queue_stats(
    gateway: &Gateway,
    queue: &QueueCounts,
    tallies: &BTreeMap<QueueName, Tallied>,
    rates: &BTreeMap<QueueName, Rates>,
) -> Value {
    let tallied = tallies.get(&queue.queue).copied().unwrap_or_default();
    let channel = match gateway.queue_settings.of(&queue.queue).outlet {
        Outlet::Channel(channel) => Some(channel.as_str()),
        Outlet::Pull(_) => None,
    };
    let mut stats = json!({
        "queue": queue.queue.as_str(),
        "channel": channel,
        "paused": queue.paused,
        "depth": lanes(queue.depth),
        "leased": queue.leased,
        "delivered": tallied.delivered,
        "accepted": tallied.accepted,
        "retried": tallied.retried,
        "dead": tallied.dead,
    });
    put_rates(&mut stats, rates.get(&queue.queue).copied().unwrap_or_default());
    stats
}

fn put_rates(stats: &mut Value, rates: Rates) {
    stats["processedPerSecond"] = rates.processed_per_second.into();
    stats["processingMsAverage"] = rates.processing_ms_average.into();
    stats["retryRate"] = rates.retry_rate.into();
    stats["failureRate"] = rates.failure_rate.into();
}

fn lanes(depth: [u64; 3]) -> Map<String, Value> {
    Lane::ALL.iter().map(|lane| (lane.as_str().to_owned(), depth[lane.index()].into())).collect()
}

fn breaker(report: &BreakerReport) -> Value {
    let changes: Map<String, Value> =
        report.changes.iter().map(|(state, count)| (state.as_str().to_owned(), (*count).into())).collect();
    json!({
        "channel": report.channel,
        "state": report.state.as_str(),
        "changes": changes,
        "attemptsUnderWay": report.attempts_under_way,
    })
}

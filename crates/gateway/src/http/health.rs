use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value, json};
use tidegate_domain::Health;
use tidegate_edge::ApiError;

use super::Gateway;
use super::answer;

/// `GET /health/live`: this process answers. Nothing else is asked, so that a slow disk gets nobody killed.
pub async fn live() -> Result<Response, ApiError> {
    answer::json(StatusCode::OK, &json!({"status": "live"}))
}

/// `GET /health/ready`: whether to send traffic here, and if not, which part says no.
pub async fn ready(State(gateway): State<Arc<Gateway>>) -> Result<Response, ApiError> {
    // The reason may name paths of this machine; it is in the log, and callers need the state alone.
    let ledger = match gateway.ledger.health() {
        Health::Ready => "ready",
        Health::ReadOnly(_) => "read_only",
        Health::Away(_) => "away",
        Health::Failed(_) => "failed",
    };
    let (sender, draining) = (gateway.sender.is_running(), gateway.is_draining());
    let relay = gateway.relay.is_running();
    let refusing = gateway.bus.as_ref().is_some_and(|bus| gateway.role.serves_api() && bus.refuses());
    let ready = ledger == "ready" && sender && relay && !refusing && !draining;
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    // A provider that is down keeps nobody from handing messages in, so this is for people only.
    let reports = gateway.channels.iter().map(|channel| channel.report());
    let breakers: Map<String, Value> =
        reports.map(|report| (report.channel.to_owned(), report.state.as_str().into())).collect();
    // Neither does a store of buckets that is away: the policies' strategies decide.
    let away = gateway.policies.engine.buckets().counts().away;
    let degraded = |away| if away { "degraded" } else { "ready" };
    // Nor is one that has no room for now: whoever was turned away knows when to come back, and urgent ones pass.
    let full_queues: Vec<_> = gateway.stats.full_queues().iter().map(ToString::to_string).collect();
    let mut body = json!({
        "status": if ready { "ready" } else { "not_ready" },
        "ledger": ledger,
        "role": gateway.role.as_str(),
        "sender": if sender { "running" } else { "not_running" },
        "draining": draining,
        "breakers": breakers,
        "policies": degraded(away),
        "intake": if gateway.stats.is_full() || !full_queues.is_empty() { "full" } else { "ready" },
        "fullQueues": full_queues,
    });
    // Where messages may wait for it, a bus that is away keeps nobody from handing them in.
    if let Some(bus) = &gateway.bus {
        let refused_queues = bus.refused_queues();
        let status = match (bus.is_away(), refused_queues.is_empty()) {
            (true, _) => "away",
            (false, false) => "refusing",
            (false, true) => "ready",
        };
        body["bus"] = json!({
            "kind": bus.name(),
            "status": status,
            "refusedQueues": refused_queues,
            "relay": if relay { "running" } else { "not_running" },
        });
    }
    // The ledger answers for it.
    if let Some(accelerated) = &gateway.accelerated {
        body["quotaAccelerator"] = degraded(accelerated.is_degraded()).into();
    }
    answer::json(status, &body)
}

/// Everything else, where the process only sends. Not a 404, which would say that there is no such message or user.
pub async fn no_api() -> ApiError {
    let message = "this process has the role \"sender\" and takes no requests; ask one with the role \"gateway\" or \"all\"";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no_api", message).retry_after_ms(1_000)
}

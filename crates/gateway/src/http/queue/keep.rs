use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use serde_json::json;
use tidegate_domain::QueueName;
use tidegate_edge::{ApiError, Audit, Principal};

use super::{CONSUMER_GROUP, group, no_value};
use crate::http::answer;
use crate::http::failure::{check_admin, check_writable, from_ledger};
use crate::http::{Gateway, options};

/// `POST /queue/purge`: takes back everything that waits. What is leased goes on.
pub async fn purge(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    audit: Audit,
    request: Request,
) -> Result<Response, ApiError> {
    let queue = checked(&gateway, &principal, &request)?;
    let purged = gateway.queues.purge(queue.clone()).await.map_err(from_ledger)?;
    audit.record("queue purged", format_args!("{queue}, {purged} messages"));
    answer::json(StatusCode::OK, &json!({"consumerGroup": queue.as_str(), "purged": purged}))
}

/// `POST /queue/pause`: messages come in and none goes out, through restarts.
pub async fn pause(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    audit: Audit,
    request: Request,
) -> Result<Response, ApiError> {
    let queue = checked(&gateway, &principal, &request)?;
    set_paused(&gateway, &audit, queue, true).await
}

/// `POST /queue/resume`
pub async fn resume(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    audit: Audit,
    request: Request,
) -> Result<Response, ApiError> {
    let queue = checked(&gateway, &principal, &request)?;
    set_paused(&gateway, &audit, queue, false).await
}

async fn set_paused(
    gateway: &Gateway,
    audit: &Audit,
    queue: QueueName,
    paused: bool,
) -> Result<Response, ApiError> {
    if !gateway.queues.pause(queue.clone(), paused).await.map_err(from_ledger)? {
        let message = format!(
            "there is no queue {queue}; it comes into being with its first message, or in the configuration"
        );
        return Err(ApiError::not_found("unknown_queue", message));
    }
    audit.record(if paused { "queue paused" } else { "queue resumed" }, &queue);
    answer::json(StatusCode::OK, &json!({"consumerGroup": queue.as_str(), "paused": paused}))
}

fn checked(gateway: &Gateway, principal: &Principal, request: &Request) -> Result<QueueName, ApiError> {
    check_admin(principal, "queues are kept by")?;
    let mut fields = options::fields(request, &[CONSUMER_GROUP]);
    let queue = group(&mut fields);
    fields.finish()?;
    check_writable(gateway.ledger.health())?;
    queue.ok_or_else(no_value)
}

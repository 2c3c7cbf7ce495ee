use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, json};
use tidegate_edge::ApiError;

use super::answer;

const LINKS: &[(&str, &str)] = &[
    ("configureQuota", "POST /api/config"),
    ("listQuotas", "GET /api/config"),
    ("showQuota", "GET /api/config/{userId}"),
    ("deleteQuota", "DELETE /api/config/{userId}"),
    ("send", "POST /api/send"),
    ("sendMessage", "POST /api/v1/messages"),
    ("sendMessages", "POST /api/v1/messages/batch"),
    ("listMessages", "GET /api/v1/messages"),
    ("showMessage", "GET /api/v1/messages/{id}"),
    ("cancelMessage", "DELETE /api/v1/messages/{id}"),
    ("ack", "POST /api/v1/ack"),
    ("deadLetters", "GET /api/v1/dead-letters"),
    ("showDeadLetter", "GET /api/v1/dead-letters/{id}"),
    ("requeueDeadLetter", "POST /api/v1/dead-letters/{id}/requeue"),
    ("deleteDeadLetter", "DELETE /api/v1/dead-letters/{id}"),
    ("requeueDeadLetters", "POST /api/v1/dead-letters/requeue"),
    ("push", "POST /queue/push"),
    ("pushMany", "POST /queue/batch/push"),
    ("pop", "GET /queue/pop"),
    ("view", "GET /queue/view"),
    ("ackPopped", "POST /queue/ack"),
    ("nackPopped", "POST /queue/nack"),
    ("extendLease", "POST /queue/extend"),
    ("purgeQueue", "POST /queue/purge"),
    ("pauseQueue", "POST /queue/pause"),
    ("resumeQueue", "POST /queue/resume"),
    ("readInbox", "GET /inbox/{recipient}/messages"),
    ("watchInbox", "GET /inbox/{recipient}/events"),
    ("ackInbox", "POST /inbox/{recipient}/ack"),
    ("issueInboxToken", "POST /api/v1/inbox-tokens"),
    ("stats", "GET /api/v1/stats"),
    ("configureSlots", "POST /admin/rate-limit/config"),
    ("showSlotConfig", "GET /admin/rate-limit/config"),
    ("assignSlot", "POST /api/v1/slots"),
    ("assignSlots", "POST /api/v1/slots/batch"),
    ("forecastSlot", "GET /api/v1/slots/forecast"),
    ("showSlot", "GET /api/v1/slots/{eventId}"),
    ("releaseSlot", "DELETE /api/v1/slots/{eventId}"),
    ("flushSlotCache", "POST /admin/rate-limit/cache/flush"),
    ("policies", "GET /admin/policies"),
    ("reloadPolicies", "POST /admin/policies/reload"),
    ("showBucket", "GET /admin/policies/{name}/keys/{key}"),
    ("fillBucket", "DELETE /admin/policies/{name}/keys/{key}"),
    ("live", "GET /health/live"),
    ("ready", "GET /health/ready"),
    ("metrics", "GET /metrics"),
];

/// `GET /`: for whoever opens the address to see what is there.
pub async fn show() -> Result<Response, ApiError> {
    let links: Map<_, _> = LINKS.iter().map(|(name, link)| ((*name).to_owned(), (*link).into())).collect();
    let body = json!({"name": "tidegate", "version": env!("CARGO_PKG_VERSION"), "links": links});
    answer::json(StatusCode::OK, &body)
}

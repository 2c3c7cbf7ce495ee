use axum::response::Response;
use http::StatusCode;
use serde_json::json;
use tidegate_edge::ApiError;

use super::answer;

/// `GET /`: for whoever opens the address to see what is there.
pub async fn show() -> Result<Response, ApiError> {
    let body = json!({
        "name": "tidegate",
        "version": env!("CARGO_PKG_VERSION"),
        "links": {
            "configureQuota": "POST /api/config",
            "listQuotas": "GET /api/config",
            "showQuota": "GET /api/config/{userId}",
            "deleteQuota": "DELETE /api/config/{userId}",
            "send": "POST /api/send",
            "sendMessage": "POST /api/v1/messages",
            "sendMessages": "POST /api/v1/messages/batch",
            "listMessages": "GET /api/v1/messages",
            "showMessage": "GET /api/v1/messages/{id}",
            "cancelMessage": "DELETE /api/v1/messages/{id}",
            "ack": "POST /api/v1/ack",
            "deadLetters": "GET /api/v1/dead-letters",
            "requeueDeadLetters": "POST /api/v1/dead-letters/requeue",
            "push": "POST /queue/push",
            "pushMany": "POST /queue/batch/push",
            "pop": "GET /queue/pop",
            "view": "GET /queue/view",
            "issueInboxToken": "POST /api/v1/inbox-tokens",
            "stats": "GET /api/v1/stats",
            "configureSlots": "POST /admin/rate-limit/config",
            "showSlotConfig": "GET /admin/rate-limit/config",
            "assignSlot": "POST /api/v1/slots",
            "assignSlots": "POST /api/v1/slots/batch",
            "forecastSlot": "GET /api/v1/slots/forecast",
            "showSlot": "GET /api/v1/slots/{eventId}",
            "releaseSlot": "DELETE /api/v1/slots/{eventId}",
            "policies": "GET /admin/policies",
            "live": "GET /health/live",
            "ready": "GET /health/ready",
            "metrics": "GET /metrics",
        },
    });
    answer::json(StatusCode::OK, &body)
}

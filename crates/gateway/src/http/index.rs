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
            "showQuota": "GET /api/config/{userId}",
            "send": "POST /api/send",
            "showMessage": "GET /api/v1/messages/{id}",
            "live": "GET /health/live",
            "ready": "GET /health/ready",
            "metrics": "GET /metrics",
        },
    });
    answer::json(StatusCode::OK, &body)
}

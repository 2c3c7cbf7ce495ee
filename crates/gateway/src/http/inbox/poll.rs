use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};
use tidegate_edge::ApiError;
use tokio::time::{Duration, Instant, timeout};

use super::{listen, recipient, shown};
use crate::http::fields::Name;
use crate::http::{Gateway, answer, query};

const WAIT_SECONDS: Name = Name::new("waitSeconds", "wait_seconds");
const MAX: Name = Name::new("max", "max");
const MOST: u64 = 100;
const SLICE: Duration = Duration::from_secs(1);

/// `GET /inbox/{recipient}/messages?waitSeconds=`: what awaits an ack, and with a wait, the first that comes.
pub async fn messages(
    State(gateway): State<Arc<Gateway>>,
    path: Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let mut fields = query::fields(request.uri())?;
    let recipient = recipient(&gateway, path, request.headers(), &mut fields)?;
    let wait_s = fields.count(WAIT_SECONDS, 0..=gateway.queue_settings.wait_seconds_max);
    let max = fields.count(MAX, 1..=MOST);
    fields.finish()?;
    let deadline = Instant::now() + Duration::from_secs(wait_s.flatten().unwrap_or(0));
    let max = usize::try_from(max.flatten().unwrap_or(MOST)).unwrap_or(1);
    drop(request);
    let mut listening = listen(&gateway, &recipient)?;
    let mut found: Vec<Value> = Vec::new();
    loop {
        while found.len() < max {
            let Some(message) = listening.try_next() else { break };
            found.push(shown(&message));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if !found.is_empty() || left.is_zero() || gateway.is_draining() {
            return answer::json(StatusCode::OK, &json!({ "messages": found }));
        }
        match timeout(left.min(SLICE), listening.next()).await {
            Ok(Some(message)) => found.push(shown(&message)),
            // Left behind: what it missed is found by the next poll.
            Ok(None) => return answer::json(StatusCode::OK, &json!({ "messages": found })),
            Err(_elapsed) => {}
        }
    }
}

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};
use tidegate_domain::BATCH_BYTES_MAX;
use tidegate_edge::ApiError;
use tokio::time::{Duration, Instant, timeout};

use super::{listen, recipient, shown};
use crate::devices::DeviceMessage;
use crate::http::fields::Name;
use crate::http::{Gateway, answer, query};

const WAIT_SECONDS: Name = Name::new("waitSeconds", "wait_seconds");
const MAX: Name = Name::new("max", "max");
const MOST: u64 = 100;
const SLICE: Duration = Duration::from_secs(1);
/// An answer with more needs a place: most are far smaller, and devices are many.
const SMALL_BYTES: usize = 256 << 10;

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
    let (mut found, mut bytes) = (Vec::new(), 0);
    loop {
        // What is left stays in the inbox until it is acked: the next poll finds it.
        while found.len() < max && bytes < BATCH_BYTES_MAX {
            let Some(message) = listening.try_next() else { break };
            bytes += message.body.len();
            found.push(message);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if !found.is_empty() || left.is_zero() || gateway.is_draining() {
            return show(&gateway, &found, bytes).await;
        }
        match timeout(left.min(SLICE), listening.next()).await {
            Ok(Some(message)) => {
                bytes += message.body.len();
                found.push(message);
            }
            // Left behind: what it missed is found by the next poll.
            Ok(None) => return show(&gateway, &found, bytes).await,
            Err(_elapsed) => {}
        }
    }
}

async fn show(gateway: &Gateway, found: &[DeviceMessage], bytes: usize) -> Result<Response, ApiError> {
    let place = if bytes > SMALL_BYTES { Some(gateway.large_answers.begin().await?) } else { None };
    let messages: Vec<Value> = found.iter().map(shown).collect();
    let response = answer::json(StatusCode::OK, &json!({ "messages": messages }))?;
    Ok(match place {
        Some(place) => place.until_sent(response),
        None => response,
    })
}

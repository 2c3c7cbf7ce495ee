use http::{HeaderValue, StatusCode};
use serde_json::json;
use tidegate_domain::{Admission, Admitted, MessageId, QueueName, Timestamp};
use tidegate_edge::ApiError;

use super::Gateway;
use super::bus::put_degraded;
use super::failure::{from_ledger, full};
use super::idempotency::{REPLAY, note_duplicate};

/// How long a queue that is full should be left alone; nobody knows how fast it empties.
const QUEUE_FULL_RETRY_MS: u64 = 1_000;

/// A message that is in the ledger now.
#[derive(Debug, Clone, Copy)]
pub struct Accepted {
    pub id: MessageId,
    pub at: Timestamp,
    /// It was there before, under the same idempotency key.
    pub replay: bool,
    /// It waits for the bus.
    pub degraded: bool,
}

/// Admits messages that nobody's quota is charged for, in one commit. The outer error concerns all of them.
pub async fn admit(
    gateway: &Gateway,
    batch: Vec<Admission>,
) -> Result<Vec<Result<Accepted, ApiError>>, ApiError> {
    let queues: Vec<QueueName> = batch.iter().map(|admission| admission.queue.clone()).collect();
    let degraded = gateway.is_degraded(&queues)?;
    let admitted = gateway.ledger.admit(batch).await.map_err(from_ledger)?;
    if admitted.len() != queues.len() {
        return Err(ApiError::internal("the ledger did not answer every admission"));
    }
    let answers = queues.iter().zip(admitted);
    Ok(answers.map(|(queue, admitted)| accepted(gateway, queue, admitted, degraded)).collect())
}

/// For the one message of a request.
pub async fn admit_one(gateway: &Gateway, admission: Admission) -> Result<Accepted, ApiError> {
    let mut results = admit(gateway, vec![admission]).await?;
    results.pop().unwrap_or_else(|| Err(ApiError::internal("the ledger gave no answer for an admission")))
}

/// When nothing of a batch got in, for want of room: the whole of it is worth another try, and is answered like a
/// message alone. A conflict would be one again.
pub fn check_any_admitted(results: &[Result<Accepted, ApiError>]) -> Result<(), ApiError> {
    if results.iter().any(Result::is_ok) {
        return Ok(());
    }
    let mut refusals = results.iter().filter_map(|result| result.as_ref().err());
    refusals.find(|error| error.status() != StatusCode::CONFLICT).map_or(Ok(()), |error| Err(error.clone()))
}

/// A slip in a queue's name must not make a queue that nobody empties.
pub fn configured(gateway: &Gateway, text: &str) -> Result<QueueName, String> {
    let queue = QueueName::new(text).map_err(|wrong| wrong.0.to_owned())?;
    match gateway.queue_settings.named.contains_key(&queue) {
        true => Ok(queue),
        false => Err(format!("there is no queue {queue}; [[queues]] in the configuration names them")),
    }
}

fn accepted(
    gateway: &Gateway,
    queue: &QueueName,
    admitted: Admitted,
    degraded: bool,
) -> Result<Accepted, ApiError> {
    match admitted {
        Admitted::Admitted { id, at, .. } | Admitted::Deferred { id, at, .. } => {
            Ok(Accepted { id, at, replay: false, degraded })
        }
        Admitted::Duplicate { id, at } => {
            note_duplicate(id, at);
            Ok(Accepted { id, at, replay: true, degraded })
        }
        Admitted::KeyConflict { id } => Err(key_conflict(id)),
        Admitted::QueueFull => Err(queue_full(gateway, queue)),
        Admitted::Full => Err(ledger_full(gateway)),
        Admitted::UnknownUser | Admitted::OverQuota { .. } => {
            Err(ApiError::internal("a quota that nobody asked for"))
        }
    }
}

pub fn key_conflict(id: MessageId) -> ApiError {
    let message = "this Idempotency-Key was used for another request";
    let error = ApiError::new(StatusCode::CONFLICT, "idempotency_conflict", message);
    error.with("id", json!(id.to_string()))
}

pub fn ledger_full(gateway: &Gateway) -> ApiError {
    gateway.stats.was_full(None);
    full()
}

pub fn queue_full(gateway: &Gateway, queue: &QueueName) -> ApiError {
    gateway.stats.was_full(Some(queue));
    metrics::counter!("tidegate_queue_full_total", "queue" => queue.to_string()).increment(1);
    let message = format!("queue {queue} holds as many messages as it may; nothing was stored");
    ApiError::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message).retry_after_ms(QUEUE_FULL_RETRY_MS)
}

pub fn put_accepted(headers: &mut http::HeaderMap, accepted: &Accepted) {
    put_degraded(headers, accepted.degraded);
    if accepted.replay {
        headers.insert(REPLAY, HeaderValue::from_static("true"));
    }
}

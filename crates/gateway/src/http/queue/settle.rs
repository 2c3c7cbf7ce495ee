use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};
use tidegate_domain::{Extension, Outcome, Settled, Settlement, Timestamp, counted};
use tidegate_edge::{ApiError, Principal, read_json};

use super::no_value;
use super::receipt::Receipt;
use crate::http::Gateway;
use crate::http::answer::{self, iso};
use crate::http::envelope::{DELAY_SECONDS, SECONDS_MAX};
use crate::http::failure::{check_writable, from_ledger};
use crate::http::fields::{Fields, Name};

const RECEIPT: Name = Name::new("receipt", "receipt");
const RECEIPTS: Name = Name::new("receipts", "receipts");
const REASON: Name = Name::new("reason", "reason");
const SECONDS: Name = Name::new("seconds", "seconds");

const REASON_BYTES_MAX: usize = 1_024;
const EXTENSION_SECONDS_MAX: u64 = 43_200;

/// `POST /queue/ack`: the consumer is done with one message, or with several.
pub async fn ack(
    State(gateway): State<Arc<Gateway>>,
    _principal: Principal,
    request: Request,
) -> Result<Response, ApiError> {
    let mut fields = body(&gateway, request).await?;
    let many = fields.has(RECEIPTS);
    let receipts = if many {
        receipts(&mut fields, &gateway)
    } else {
        fields.parsed(RECEIPT, str::parse).map(|one| vec![one])
    };
    fields.finish()?;
    let receipts: Vec<Receipt> = receipts.ok_or_else(no_value)?;
    let now = gateway.clock.now();
    let batch = receipts.iter().map(|receipt| settlement(receipt, Outcome::Delivered, now)).collect();
    let settled = settle(&gateway, &receipts, batch).await?;
    if !many {
        return one(&receipts[0], settled.first(), "acked");
    }
    let result = |(receipt, settled): (&Receipt, &Settled)| {
        let status = if *settled == Settled::Done { "acked" } else { "lease_lost" };
        json!({"id": receipt.id.to_string(), "receipt": receipt.to_string(), "status": status})
    };
    let results: Vec<Value> = receipts.iter().zip(&settled).map(result).collect();
    answer::json(StatusCode::OK, &json!({ "results": results }))
}

/// `POST /queue/nack`: the consumer could not do it. After as many attempts as the group grants: a dead letter.
pub async fn nack(
    State(gateway): State<Arc<Gateway>>,
    _principal: Principal,
    request: Request,
) -> Result<Response, ApiError> {
    let mut fields = body(&gateway, request).await?;
    let receipt = fields.parsed(RECEIPT, str::parse::<Receipt>);
    let reason = fields.parsed_or(REASON, || "nacked by its consumer".to_owned(), reason);
    let delay_s = fields.count(DELAY_SECONDS, 0..=SECONDS_MAX);
    fields.finish()?;
    let (Some(receipt), Some(reason), Some(delay_s)) = (receipt, reason, delay_s) else {
        return Err(no_value());
    };
    let attempts = receipt.failures.saturating_add(1);
    let (outcome, status) = if attempts >= receipt.attempts_max {
        let spent = counted(attempts, "attempt");
        (Outcome::Dead { reason: format!("gave up after {spent}: {reason}") }, "dead")
    } else {
        (Outcome::Retry { delay_ms: delay_s.unwrap_or(0) * 1_000, reason }, "requeued")
    };
    let batch = vec![settlement(&receipt, outcome, gateway.clock.now())];
    let settled = settle(&gateway, std::slice::from_ref(&receipt), batch).await?;
    one(&receipt, settled.first(), status)
}

/// `POST /queue/extend`: the consumer needs that much time from now on.
pub async fn extend(
    State(gateway): State<Arc<Gateway>>,
    _principal: Principal,
    request: Request,
) -> Result<Response, ApiError> {
    let mut fields = body(&gateway, request).await?;
    let receipt = fields.parsed(RECEIPT, str::parse::<Receipt>);
    let seconds = fields.count(SECONDS, 1..=EXTENSION_SECONDS_MAX);
    if let Some(None) = seconds {
        fields.fault::<()>(SECONDS, "is missing");
    }
    fields.finish()?;
    let (Some(receipt), Some(Some(seconds))) = (receipt, seconds) else { return Err(no_value()) };
    let (lease_ms, now) = (seconds * 1_000, gateway.clock.now());
    let extension = Extension { id: receipt.id, token: receipt.token, lease_ms };
    let extended = gateway.queues.extend(vec![extension]).await.map_err(from_ledger)?;
    match extended.first() {
        Some(Settled::Done) => {
            let until = iso(now.plus_ms(lease_ms));
            let body = json!({"id": receipt.id.to_string(), "status": "extended", "leaseUntil": until});
            answer::json(StatusCode::OK, &body)
        }
        _ => Err(lease_lost(&receipt)),
    }
}

/// Settles, and counts what was in time.
async fn settle(
    gateway: &Gateway,
    receipts: &[Receipt],
    batch: Vec<Settlement>,
) -> Result<Vec<Settled>, ApiError> {
    let settled = gateway.ledger.settle(batch.clone()).await.map_err(from_ledger)?;
    for ((receipt, settlement), settled) in receipts.iter().zip(&batch).zip(&settled) {
        if *settled == Settled::Done && gateway.stats.knows(&receipt.queue) {
            gateway.stats.of(&receipt.queue).settled(settlement);
        }
    }
    Ok(settled)
}

async fn body(gateway: &Gateway, request: Request) -> Result<Fields, ApiError> {
    check_writable(gateway.ledger.health())?;
    Ok(Fields::new(read_json(request, &gateway.limits).await?))
}

fn receipts(fields: &mut Fields, gateway: &Gateway) -> Option<Vec<Receipt>> {
    let items = fields.items(RECEIPTS, gateway.queue_settings.batch_max)?;
    let mut receipts = Vec::with_capacity(items.len());
    for (place, item) in items.iter().enumerate() {
        match item.as_str().map(str::parse) {
            Some(Ok(receipt)) => receipts.push(receipt),
            _ => {
                fields.fault_at(format_args!("receipts[{place}]"), "must be the receipt of a popped message")
            }
        }
    }
    Some(receipts)
}

fn settlement(receipt: &Receipt, outcome: Outcome, now: Timestamp) -> Settlement {
    let latency_ms = now.since_ms(receipt.leased_at);
    Settlement { id: receipt.id, token: receipt.token, outcome, latency_ms }
}

fn one(receipt: &Receipt, settled: Option<&Settled>, status: &str) -> Result<Response, ApiError> {
    match settled {
        Some(Settled::Done) => {
            answer::json(StatusCode::OK, &json!({"id": receipt.id.to_string(), "status": status}))
        }
        _ => Err(lease_lost(receipt)),
    }
}

fn lease_lost(receipt: &Receipt) -> ApiError {
    let message = "the lease has ended: the message is somebody else's now, or settled";
    ApiError::new(StatusCode::CONFLICT, "lease_lost", message).with("id", json!(receipt.id.to_string()))
}

fn reason(text: &str) -> Result<String, String> {
    // PostgreSQL keeps every text but one with a NUL.
    let fits = !text.trim().is_empty() && text.len() <= REASON_BYTES_MAX && !text.contains('\0');
    let wrong = || format!("must be 1 to {REASON_BYTES_MAX} bytes, not blank, without NUL");
    if fits { Ok(text.to_owned()) } else { Err(wrong()) }
}

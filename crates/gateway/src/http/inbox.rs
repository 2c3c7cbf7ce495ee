//! `/inbox/{recipient}/*`: a recipient's devices read their messages and ack them. They show a token, not a
//! principal's credentials.

mod ack;
mod events;
mod poll;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::post;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};
use tidegate_domain::{Recipient, Status};
use tidegate_edge::{ApiError, Audit, FieldError, Principal, Sent, read_json};

use super::Gateway;
use super::answer::{self, get_only, iso};
use super::envelope::RECIPIENT;
use super::failure::check_admin;
use super::fields::{Fields, Name};
use crate::devices::{DeviceMessage, Devices, Handover, Listening};

const TOKEN: Name = Name::new("token", "token");
const BUSY_RETRY_MS: u64 = 5_000;

pub fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/inbox/{recipient}/messages", get_only(poll::messages))
        .route("/inbox/{recipient}/events", get_only(events::events))
        .route("/inbox/{recipient}/ack", post(ack::ack))
        .route("/api/v1/inbox-tokens", post(issue))
}

/// `POST /api/v1/inbox-tokens`: the token of a recipient's devices. It is the same until the secret changes.
async fn issue(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    audit: Audit,
    request: Request,
) -> Result<Response, ApiError> {
    check_admin(&principal, "tokens of inboxes are issued by")?;
    let devices = devices(&gateway)?;
    let mut fields = Fields::new(read_json(request, &gateway.limits).await?);
    let recipient = fields.parsed(RECIPIENT, Recipient::new);
    fields.finish()?;
    let recipient =
        recipient.ok_or_else(|| ApiError::internal("a field without a value and without a fault"))?;
    audit.record("inbox token issued", &recipient);
    let token = devices.token_for(&recipient);
    answer::json(StatusCode::OK, &json!({"recipient": recipient.as_str(), "token": token}))
}

/// Whose inbox it is, once the token has proven it: in `Authorization: Bearer`, or in the query for browsers, whose
/// event sources send no headers.
fn recipient(
    gateway: &Gateway,
    Path(recipient): Path<String>,
    headers: &HeaderMap,
    fields: &mut Fields,
) -> Result<Recipient, ApiError> {
    let devices = devices(gateway)?;
    let in_query = fields.optional(TOKEN, |text| Ok::<_, String>(text.to_owned())).flatten();
    let in_header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let in_header = in_header
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let token = in_header.map(|(_, token)| token.trim().to_owned()).or(in_query);
    let recipient = Recipient::new(&recipient)
        .map_err(|wrong| ApiError::invalid_fields(vec![FieldError::new("recipient", wrong.0)]))?;
    match token {
        Some(token) if devices.verify(&recipient, &token) => Ok(recipient),
        _ => {
            metrics::counter!("tidegate_inbox_refused_total").increment(1);
            let message = "the inbox needs its recipient's token, as Bearer or as the parameter token";
            let challenge = HeaderValue::from_static("Bearer realm=\"tidegate\"");
            let error = ApiError::new(StatusCode::UNAUTHORIZED, "invalid_token", message);
            Err(error.header(WWW_AUTHENTICATE, challenge))
        }
    }
}

fn devices(gateway: &Gateway) -> Result<&dyn Devices, ApiError> {
    let message = "no queue has the channel \"inbox\"; [[queues]] in the configuration gives it to one";
    gateway.devices.as_deref().ok_or_else(|| ApiError::not_found("no_inbox", message))
}

/// Where it is told that an answer is written. A request that came over no connection has an answer that is never written.
fn sent_of(request: &Request) -> Sent {
    request.extensions().get().cloned().unwrap_or_default()
}

fn listen(gateway: &Gateway, recipient: &Recipient) -> Result<Box<dyn Listening>, ApiError> {
    devices(gateway)?.listen(recipient).ok_or_else(|| {
        let message = "as many devices listen as may; try again when one has left";
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_listeners", message)
            .retry_after_ms(BUSY_RETRY_MS)
    })
}

/// Whether a device is still to be given it. An ack that came to another process ends a message that this one keeps.
async fn is_awaited(gateway: &Gateway, handover: &Handover) -> bool {
    if !handover.is_repeated {
        return true;
    }
    let id = handover.message.id;
    let record = gateway.ledger.message(id).await;
    // A repetition does less harm than silence.
    let has_ended = record.is_ok_and(|record| record.is_none_or(|record| record.status != Status::Pending));
    if has_ended && let Some(devices) = &gateway.devices {
        devices.acked(&[id]);
    }
    !has_ended
}

fn shown(message: &DeviceMessage) -> Value {
    let headers: Map<String, Value> =
        message.headers.0.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    json!({
        "id": message.id.to_string(),
        "sequence": message.id.seq(),
        "queue": message.queue.as_str(),
        "idempotencyKey": message.idempotency_key,
        "body": String::from_utf8_lossy(&message.body),
        "headers": headers,
        "admittedAt": iso(message.admitted_at),
        "attempt": message.attempt,
        "ackRequired": message.ack_required,
    })
}

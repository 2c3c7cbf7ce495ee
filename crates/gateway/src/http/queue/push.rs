use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use tidegate_edge::{ApiError, FieldError, Principal, read_body};

use super::{CONSUMER_GROUP, MessageResponse, group, no_value};
use crate::http::admission::{admit_one, put_accepted};
use crate::http::answer::{iso, json, put_durability};
use crate::http::envelope::{DELAY_SECONDS, Envelope, RECIPIENT, SCHEDULED_AT, TTL_SECONDS};
use crate::http::failure::{check_writable, overloaded};
use crate::http::fields::PRIORITY;
use crate::http::{Gateway, idempotency, options, priority, trace};

pub const OPERATION: &str = "push";

/// `POST /queue/push`: the body is the message, byte for byte.
pub async fn push(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    request: Request,
) -> Result<Response, ApiError> {
    check_writable(gateway.ledger.health())?;
    let _permit = gateway.intake.try_acquire().map_err(|_| overloaded())?;
    let names = [CONSUMER_GROUP, RECIPIENT, PRIORITY, DELAY_SECONDS, SCHEDULED_AT, TTL_SECONDS];
    let mut fields = options::fields(&request, &names);
    fields.claim(priority::claimed(request.headers()));
    let (queue, envelope) = (group(&mut fields), Envelope::read(&mut fields));
    if let (Some(queue), Some(envelope)) = (&queue, &envelope) {
        envelope.check_lifetime(&mut fields, &gateway, queue);
        envelope.check_recipient(&mut fields, &gateway, queue);
    }
    let key = fields.header(idempotency::HEADER_NAME, idempotency::header_key(request.headers()));
    fields.finish()?;
    let (Some(queue), Some(mut envelope)) = (queue, envelope) else { return Err(no_value()) };
    envelope.key = key.or(envelope.key);
    envelope.trace = trace::of_request(request.headers());
    let body = read_body(request, &gateway.limits).await?;
    let content = checked_content(&body)?;
    let admission = envelope.admission(&gateway, (&principal.name, OPERATION), queue, body.clone());
    let accepted = admit_one(&gateway, admission).await?;
    metrics::counter!("tidegate_queue_pushed_total").increment(u64::from(!accepted.replay));
    let answer = MessageResponse {
        id: accepted.id.to_string(),
        content,
        created_at: iso(accepted.at),
        reserved: None,
    };
    let mut response = json(StatusCode::OK, &answer)?;
    put_accepted(response.headers_mut(), &accepted);
    put_durability(response.headers_mut(), gateway.ledger.durability());
    Ok(response)
}

/// Text, and not blank.
pub fn checked_content(body: &[u8]) -> Result<&str, ApiError> {
    let wrong = |what| ApiError::invalid_fields(vec![FieldError::new("content", what)]);
    let content = std::str::from_utf8(body).map_err(|_| wrong("is not valid UTF-8"))?;
    if content.trim().is_empty() { Err(wrong("must not be blank")) } else { Ok(content) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_kept_as_it_is_unless_it_is_blank_or_no_text() {
        for text in [" a ", "{\"a\": 1}", "ü\n", "\u{feff}x"] {
            assert_eq!(checked_content(text.as_bytes()).unwrap(), text);
        }
        for wrong in [b"".as_slice(), b" \r\n\t", b"\xff", "\u{2003}".as_bytes()] {
            assert_eq!(checked_content(wrong).unwrap_err().status(), 400);
        }
    }
}

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Map, Value, json};
use tidegate_domain::{Admission, Headers, InvalidHeader};
use tidegate_edge::{ApiError, Principal, read_json, read_json_or_array};

use crate::http::admission::{Accepted, admit, check_any_admitted, configured, put_accepted};
use crate::http::answer::{self, iso, put_durability, weaker_durability};
use crate::http::bus::put_degraded;
use crate::http::envelope::{Envelope, IDEMPOTENCY_KEY, RECIPIENT, recipient};
use crate::http::failure::{check_writable, overloaded};
use crate::http::fields::{Fields, Name};
use crate::http::{Gateway, idempotency, priority, trace};

/// The text may be called as it is in the answers.
const BODY: Name = Name::new("body", "message");
const QUEUE: Name = Name::new("queue", "queue");
const ACK_REQUIRED: Name = Name::new("ackRequired", "ack_required");
const HEADERS: Name = Name::new("headers", "headers");
const MESSAGES: Name = Name::new("messages", "messages");

const OPERATION: &str = "message";
const HEADER_BYTES_MAX: usize = 1_024;
const HEADER_NAME_SHOWN_MAX: usize = 64;

/// `POST /api/v1/messages`: 202, since the message is on disk and its delivery is yet to come.
pub async fn send(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    request: Request,
) -> Result<Response, ApiError> {
    check_writable(gateway.ledger.health())?;
    let _permit = gateway.intake.try_acquire().map_err(|_| overloaded())?;
    let key = idempotency::header_key(request.headers());
    let trace = trace::of_request(request.headers());
    let claimed = priority::claimed(request.headers());
    let mut fields = Fields::new(read_json(request, &gateway.limits).await?);
    let key = fields.header(idempotency::HEADER_NAME, key);
    fields.claim(claimed);
    let admission = read(&gateway, &principal, &mut fields, Asked::Alone(key), trace);
    fields.finish()?;
    let admission =
        admission.ok_or_else(|| ApiError::internal("a field without a value and without a fault"))?;
    let shown = admission.clone();
    let accepted = admit(&gateway, vec![admission]).await?.pop();
    let accepted = accepted.unwrap_or_else(|| Err(ApiError::internal("no answer for an admission")))?;
    let mut body = result(&shown, &Ok(accepted));
    if let (Some(durability), Value::Object(body)) =
        (weaker_durability(gateway.ledger.durability()), &mut body)
    {
        body.insert("durability".to_owned(), durability.into());
    }
    let mut response = answer::json(StatusCode::ACCEPTED, &body)?;
    put_accepted(response.headers_mut(), &accepted);
    put_durability(response.headers_mut(), gateway.ledger.durability());
    Ok(response)
}

/// `POST /api/v1/messages/batch`: all of them are checked before any is admitted; one commit, one result each.
pub async fn send_many(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    request: Request,
) -> Result<Response, ApiError> {
    check_writable(gateway.ledger.health())?;
    let _permit = gateway.intake.try_acquire().map_err(|_| overloaded())?;
    let key = idempotency::header_key(request.headers());
    let trace = trace::of_request(request.headers());
    let claimed = priority::claimed(request.headers());
    let mut fields = Fields::new(read_json_or_array(request, &gateway.batch_limits, MESSAGES.camel()).await?);
    let key = fields.header(idempotency::HEADER_NAME, key);
    fields.claim(claimed);
    let mut batch = Vec::new();
    for (place, item) in
        fields.items(MESSAGES, gateway.queue_settings.batch_max).into_iter().flatten().enumerate()
    {
        let Value::Object(object) = item else {
            fields.fault_at(format_args!("messages[{place}]"), "must be an object");
            continue;
        };
        let mut inner = fields.inner(object);
        let of_place = key.as_ref().map(|key| format!("{key}/{place}"));
        batch.extend(read(&gateway, &principal, &mut inner, Asked::InBatch(of_place), trace.clone()));
        fields.absorb(inner, format_args!("messages[{place}]"));
    }
    fields.finish()?;
    let shown = batch.clone();
    let results = admit(&gateway, batch).await?;
    check_any_admitted(&results)?;
    let accepted = results.iter().flatten().count();
    let items: Vec<Value> =
        shown.iter().zip(&results).map(|(asked, admitted)| result(asked, admitted)).collect();
    let body = json!({"accepted": accepted, "refused": results.len() - accepted, "results": items});
    let mut response = answer::json(StatusCode::ACCEPTED, &body)?;
    put_degraded(response.headers_mut(), results.iter().flatten().any(|accepted| accepted.degraded));
    put_durability(response.headers_mut(), gateway.ledger.durability());
    Ok(response)
}

/// How a message is asked for, with the request's key.
enum Asked {
    Alone(Option<String>),
    /// A message's own key counts more than its share of the batch's.
    InBatch(Option<String>),
}

/// One message, or its faults in `fields`. A trace of its own counts more than the request's.
fn read(
    gateway: &Gateway,
    principal: &Principal,
    fields: &mut Fields,
    asked: Asked,
    trace: Option<String>,
) -> Option<Admission> {
    let recipient = fields.parsed(RECIPIENT, recipient);
    let body = fields.text(BODY);
    let queue = fields.parsed_or(QUEUE, || gateway.queue.clone(), |text| configured(gateway, text));
    let ack_required = fields.truth(ACK_REQUIRED);
    let headers = match fields.take(HEADERS) {
        None | Some(Value::Null) => Some(Headers::default()),
        Some(Value::Object(object)) => {
            read_headers(object).or_else(|wrong| fields.fault(HEADERS, &wrong).ok_or(())).ok()
        }
        Some(_) => fields.fault(HEADERS, "must be an object of strings"),
    };
    let mut envelope = Envelope::read(fields)?;
    envelope.check_lifetime(fields, gateway, queue.as_ref()?);
    envelope.recipient = Some(recipient?);
    envelope.headers = headers?;
    envelope.ack_required = ack_required?;
    let key = match asked {
        Asked::Alone(Some(key)) if envelope.key.as_ref().is_some_and(|own| *own != key) => {
            return fields.fault(IDEMPOTENCY_KEY, "differs from the header Idempotency-Key: give it once");
        }
        Asked::Alone(key) | Asked::InBatch(key) => key,
    };
    envelope.key = envelope.key.or(key);
    envelope.trace = trace;
    let body = Bytes::from(body?);
    Some(envelope.admission(gateway, (&principal.name, OPERATION), queue?, body))
}

fn read_headers(object: Map<String, Value>) -> Result<Headers, String> {
    let pair = |(name, value): (String, Value)| match value {
        Value::String(value) if value.len() <= HEADER_BYTES_MAX => Ok((name, value)),
        _ => {
            let name: String = name.chars().take(HEADER_NAME_SHOWN_MAX).collect();
            Err(format!("must not hold {name:?}: a value is a string of at most {HEADER_BYTES_MAX} bytes"))
        }
    };
    let headers = Headers(object.into_iter().map(pair).collect::<Result<_, _>>()?);
    // By the rule of the channels: they would refuse it for good, and nobody could mend it then.
    match headers.check() {
        Ok(()) => Ok(headers),
        Err(InvalidHeader { name, wrong }) if name.is_empty() => Err(wrong.to_owned()),
        Err(InvalidHeader { name, wrong }) => Err(format!("must not hold {name:?}: {wrong}")),
    }
}

fn result(asked: &Admission, admitted: &Result<Accepted, ApiError>) -> Value {
    let accepted = match admitted {
        Ok(accepted) => accepted,
        Err(error) => return json!({"status": error.code(), "message": error.message()}),
    };
    let mut body = json!({
        "id": accepted.id.to_string(),
        "status": if accepted.replay { "duplicate" } else { "accepted" },
        "sequence": accepted.id.seq(),
        "queue": asked.queue.as_str(),
        "recipient": asked.recipient.as_ref().map(|recipient| recipient.as_str()),
        "idempotencyKey": asked.headers.key_of(accepted.id),
        "admittedAt": iso(accepted.at),
    });
    if accepted.degraded {
        body["degraded"] = true.into();
    }
    // A repetition asks for the same delay at another time, and one of the same content may ask for anything.
    if accepted.replay {
        return body;
    }
    body["priority"] = asked.lane.as_str().into();
    if let tidegate_domain::Due::At(at) = asked.due {
        body["scheduledAt"] = iso(at).into();
    }
    if let Some(expires) = asked.expires {
        body["expiresAt"] = iso(expires).into();
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_names_with_short_values() {
        let read = |value: Value| match value {
            Value::Object(object) => read_headers(object).map(|headers| headers.0),
            _ => panic!("an object"),
        };
        assert_eq!(read(json!({"X-Trace": "7"})).unwrap(), [("X-Trace".to_owned(), "7".to_owned())]);
        for wrong in [
            json!({"a b": "7"}),
            json!({"a": 7}),
            json!({"a": "x\ny"}),
            json!({"a": "x".repeat(1_025)}),
            (0..33).map(|n| (format!("h{n}"), json!("x"))).collect(),
        ] {
            assert!(read(wrong).is_err());
        }
    }

    /// What a channel would refuse for good is better refused while somebody can still mend it.
    #[test]
    fn headers_that_no_channel_would_send_are_refused_at_once() {
        for name in ["Content-Length", "host", "Webhook-Id", "tidegate-queue", "Transfer-Encoding"] {
            let object = [(name.to_owned(), json!("3"))].into_iter().collect();
            let wrong = read_headers(object).unwrap_err();
            assert_eq!(wrong, format!("must not hold \"{name}\": the name is reserved"));
        }
        let much = (0..9).map(|n| (format!("h{n}"), json!("x".repeat(1_000)))).collect();
        assert_eq!(read_headers(much).unwrap_err(), "names and values may be 8 KiB at most");
    }
}

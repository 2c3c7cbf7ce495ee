use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use tidegate_domain::{Admission, QueueName};
use tidegate_edge::{ApiError, Principal, read_json_or_array};

use super::push::OPERATION;
use super::{CONSUMER_GROUP, no_value};
use crate::http::admission::{Accepted, admit, check_any_admitted};
use crate::http::answer::{self, iso, put_durability};
use crate::http::bus::put_degraded;
use crate::http::envelope::Envelope;
use crate::http::failure::{check_writable, overloaded};
use crate::http::fields::{Fields, Name};
use crate::http::{Gateway, idempotency, options, priority, trace};

const MESSAGES: Name = Name::new("messages", "messages");
const CONTENT: Name = Name::new("content", "content");

/// `POST /queue/batch/push`: an array of texts or of objects, all of them checked before any is admitted, and
/// admitted in one commit. One result each, in order.
pub async fn push(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    request: Request,
) -> Result<Response, ApiError> {
    check_writable(gateway.ledger.health())?;
    let _permit = gateway.intake.try_acquire().map_err(|_| overloaded())?;
    let mut asked = options::fields(&request, &[CONSUMER_GROUP]);
    let group = asked.optional(CONSUMER_GROUP, QueueName::new);
    asked.finish()?;
    let key = idempotency::header_key(request.headers());
    let trace = trace::of_request(request.headers());
    let claimed = priority::claimed(request.headers());
    let mut fields = Fields::new(read_json_or_array(request, &gateway.batch_limits, MESSAGES.camel()).await?);
    let key = fields.header(idempotency::HEADER_NAME, key);
    fields.claim(claimed);
    let caller = Caller { gateway: &gateway, name: &principal.name, group: group.flatten(), key, trace };
    let batch = caller.read(fields)?;
    let results = admit(&gateway, batch).await?;
    check_any_admitted(&results)?;
    let pushed = results.iter().flatten().filter(|accepted| !accepted.replay).count();
    metrics::counter!("tidegate_queue_pushed_total").increment(pushed as u64);
    let degraded = results.iter().flatten().any(|accepted| accepted.degraded);
    let results: Vec<Value> = results.iter().map(result).collect();
    let mut response = answer::json(StatusCode::OK, &json!({ "results": results }))?;
    put_degraded(response.headers_mut(), degraded);
    put_durability(response.headers_mut(), gateway.ledger.durability());
    Ok(response)
}

pub fn result(result: &Result<Accepted, ApiError>) -> Value {
    match result {
        Ok(accepted) => {
            let mut body = json!({
                "id": accepted.id.to_string(),
                "status": if accepted.replay { "duplicate" } else { "accepted" },
                "createdAt": iso(accepted.at),
            });
            if accepted.degraded {
                body["degraded"] = true.into();
            }
            body
        }
        Err(error) => json!({"status": error.code(), "message": error.message()}),
    }
}

/// Whose batch it is, and what it says once for all its messages.
struct Caller<'a> {
    gateway: &'a Gateway,
    name: &'a str,
    group: Option<QueueName>,
    key: Option<String>,
    trace: Option<String>,
}

impl Caller<'_> {
    fn read(&self, mut fields: Fields) -> Result<Vec<Admission>, ApiError> {
        let items = fields.items(MESSAGES, self.gateway.queue_settings.batch_max).unwrap_or_default();
        let mut batch = Vec::with_capacity(items.len());
        for (place, item) in items.into_iter().enumerate() {
            let object = match item {
                Value::String(text) => {
                    [(CONTENT.camel().to_owned(), Value::String(text))].into_iter().collect()
                }
                Value::Object(object) => object,
                _ => {
                    fields.fault_at(format_args!("messages[{place}]"), "must be a string or an object");
                    continue;
                }
            };
            let mut inner = fields.inner(object);
            batch.extend(self.message(&mut inner, place));
            fields.absorb(inner, format_args!("messages[{place}]"));
        }
        fields.finish()?;
        if batch.is_empty() { Err(no_value()) } else { Ok(batch) }
    }

    fn message(&self, fields: &mut Fields, place: usize) -> Option<Admission> {
        let content = fields.text(CONTENT);
        let queue = match &self.group {
            Some(group) if !fields.has(CONSUMER_GROUP) => Some(group.clone()),
            _ => super::group(fields),
        };
        let mut envelope = Envelope::read(fields)?;
        envelope.check_lifetime(fields, self.gateway, queue.as_ref()?);
        envelope.check_recipient(fields, self.gateway, queue.as_ref()?);
        // One key for the batch is one for each of its places; no key that a caller can write looks like this.
        let of_place = self.key.as_ref().map(|key| format!("{key}/{place}"));
        envelope.key = envelope.key.or(of_place);
        envelope.trace = self.trace.clone();
        let body = Bytes::from(content?);
        Some(envelope.admission(self.gateway, (self.name, OPERATION), queue?, body))
    }
}

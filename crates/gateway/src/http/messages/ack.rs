use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};
use tidegate_domain::{Acked, MessageId};
use tidegate_edge::{ApiError, Principal, read_json};

use super::unknown;
use crate::http::Gateway;
use crate::http::answer;
use crate::http::failure::{check_writable, from_ledger};
use crate::http::fields::{Fields, Name};

const ID: Name = Name::new("id", "messageId");
pub const IDS: Name = Name::new("ids", "messageIds");

/// `POST /api/v1/ack`: the recipient has one message, or several.
pub async fn ack(
    State(gateway): State<Arc<Gateway>>,
    _principal: Principal,
    request: Request,
) -> Result<Response, ApiError> {
    check_writable(gateway.ledger.health())?;
    let mut fields = Fields::new(read_json(request, &gateway.limits).await?);
    let many = fields.has(IDS);
    let ids = if many { read_ids(&mut fields, &gateway) } else { one_id(&mut fields) };
    fields.finish()?;
    let ids = ids.ok_or_else(|| ApiError::internal("a field without a value and without a fault"))?;
    let acked = gateway.queues.ack(ids.clone()).await.map_err(from_ledger)?;
    let count = acked.iter().filter(|one| **one == Acked::Acked).count();
    metrics::counter!("tidegate_acks_total").increment(count as u64);
    if many {
        let result =
            |(id, acked): (&MessageId, &Acked)| json!({"id": id.to_string(), "status": word(*acked)});
        let results: Vec<Value> = ids.iter().zip(&acked).map(result).collect();
        return answer::json(StatusCode::OK, &json!({"acked": count, "results": results}));
    }
    let id = ids[0];
    match acked.first() {
        Some(acked @ (Acked::Acked | Acked::Already)) => {
            answer::json(StatusCode::OK, &json!({"id": id.to_string(), "status": word(*acked)}))
        }
        Some(Acked::NotAwaited) => {
            let message = "no ack is awaited: no channel has accepted the message, or it has ended otherwise";
            Err(ApiError::new(StatusCode::CONFLICT, "not_awaited", message))
        }
        Some(Acked::Unknown) | None => Err(unknown(id)),
    }
}

fn word(acked: Acked) -> &'static str {
    match acked {
        Acked::Acked => "delivered",
        Acked::Already => "already_delivered",
        Acked::NotAwaited => "not_awaited",
        Acked::Unknown => "unknown_message",
    }
}

fn one_id(fields: &mut Fields) -> Option<Vec<MessageId>> {
    fields.parsed(ID, str::parse).map(|id| vec![id])
}

pub fn read_ids(fields: &mut Fields, gateway: &Gateway) -> Option<Vec<MessageId>> {
    let items = fields.items(IDS, gateway.queue_settings.batch_max)?;
    let mut ids = Vec::with_capacity(items.len());
    for (place, item) in items.iter().enumerate() {
        match item.as_str().map(str::parse) {
            Some(Ok(id)) => ids.push(id),
            _ => fields.fault_at(format_args!("ids[{place}]"), "must be a message id"),
        }
    }
    Some(ids)
}

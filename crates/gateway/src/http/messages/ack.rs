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
    let (ids, many) = read_ack(&gateway, Fields::new(read_json(request, &gateway.limits).await?))?;
    let known: Vec<_> = ids.iter().copied().map(Some).collect();
    let answered = ack_and_answer(&gateway, &ids, &known, many).await?;
    if let Some(devices) = &gateway.devices {
        devices.acked(&ids);
    }
    Ok(answered)
}

/// The ids, and whether they came as a list.
pub fn read_ack(gateway: &Gateway, mut fields: Fields) -> Result<(Vec<MessageId>, bool), ApiError> {
    let many = fields.has(IDS);
    let ids =
        if many { read_ids(&mut fields, gateway) } else { fields.parsed(ID, str::parse).map(|id| vec![id]) };
    fields.finish()?;
    let ids = ids.ok_or_else(|| ApiError::internal("a field without a value and without a fault"))?;
    Ok((ids, many))
}

/// Acks what is `known`, and answers for all.
pub async fn ack_and_answer(
    gateway: &Gateway,
    ids: &[MessageId],
    known: &[Option<MessageId>],
    many: bool,
) -> Result<Response, ApiError> {
    let asked: Vec<MessageId> = known.iter().flatten().copied().collect();
    let mut acked = gateway.queues.ack(asked).await.map_err(from_ledger)?.into_iter();
    let acked: Vec<Acked> =
        known.iter().map(|id| id.and_then(|_| acked.next()).unwrap_or(Acked::Unknown)).collect();
    let count = acked.iter().filter(|one| **one == Acked::Acked).count();
    metrics::counter!("tidegate_acks_total").increment(count as u64);
    if many {
        let result =
            |(id, acked): (&MessageId, &Acked)| json!({"id": id.to_string(), "status": word(*acked)});
        let results: Vec<Value> = ids.iter().zip(&acked).map(result).collect();
        return answer::json(StatusCode::OK, &json!({"acked": count, "results": results}));
    }
    let (Some(id), Some(acked)) = (ids.first(), acked.first()) else {
        return Err(ApiError::internal("no answer for an ack"));
    };
    match acked {
        Acked::Acked | Acked::Already => {
            answer::json(StatusCode::OK, &json!({"id": id.to_string(), "status": word(*acked)}))
        }
        Acked::NotAwaited => {
            let message =
                "no ack is awaited: the message has not been sent yet, requires none, or has ended otherwise";
            Err(ApiError::new(StatusCode::CONFLICT, "not_awaited", message))
        }
        Acked::Unknown => Err(unknown(*id)),
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

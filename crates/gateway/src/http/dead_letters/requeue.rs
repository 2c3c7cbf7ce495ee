use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};
use tidegate_domain::{Filter, MessageId, Page, Requeue, Requeued, Status};
use tidegate_edge::{ApiError, Audit, Principal, read_json, read_optional_json};

use super::{check, message_id, not_dead};
use crate::http::Gateway;
use crate::http::admission::{ledger_full, queue_full};
use crate::http::answer;
use crate::http::failure::{check_writable, from_ledger};
use crate::http::fields::{Fields, Name};
use crate::http::messages::{IDS, read_filter, read_ids};

const BODY: Name = Name::new("body", "message");
const FILTER: Name = Name::new("filter", "filter");
const RATE: Name = Name::new("ratePerSecond", "rate_per_second");

const RATE_MAX: u64 = 1_000_000;
/// Dead letters that one request brings back; the answer says when there are more.
const BY_FILTER_MAX: usize = 10_000;
const PAGE: usize = 500;

/// What became of many.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Tally {
    requeued: usize,
    not_dead: usize,
    full: usize,
    expired: usize,
    /// They can't be read, and stay where they are.
    #[serde(skip_serializing_if = "is_zero")]
    damaged: usize,
    /// There are more that match: ask again.
    more: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// `POST /api/v1/dead-letters/{id}/requeue`, with another text if `{body}` is given.
pub async fn one(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    audit: Audit,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    check(&principal)?;
    let id = message_id(&id)?;
    check_writable(gateway.ledger.health())?;
    let body = match read_optional_json(request, &gateway.limits).await? {
        None => None,
        Some(object) => {
            let mut fields = Fields::new(object);
            let body = fields.optional(BODY, |text| {
                let blank = text.trim().is_empty();
                if blank { Err("must not be blank") } else { Ok(Bytes::copy_from_slice(text.as_bytes())) }
            });
            fields.finish()?;
            body.flatten()
        }
    };
    let edited = body.is_some();
    let requeued =
        gateway.queues.requeue(vec![Requeue { id, body, delay_ms: 0 }]).await.map_err(from_ledger)?;
    match requeued.first() {
        Some(Requeued::Requeued) => {
            let action = if edited { "dead letter edited and requeued" } else { "dead letter requeued" };
            audit.record(action, id);
            answer::json(
                StatusCode::OK,
                &json!({"id": id.to_string(), "status": "pending", "edited": edited}),
            )
        }
        Some(Requeued::Full) => Err(ledger_full(&gateway)),
        Some(Requeued::QueueFull) => Err(full_queue_of(&gateway, id).await?),
        Some(Requeued::Expired) => {
            let message = "its time to live is over, so it would expire at once; it stays a dead letter";
            Err(ApiError::new(StatusCode::CONFLICT, "expired", message))
        }
        Some(Requeued::NotDead) | None => Err(not_dead(id)),
    }
}

/// Says which queue it is.
async fn full_queue_of(gateway: &Gateway, id: MessageId) -> Result<ApiError, ApiError> {
    let record = gateway.ledger.message(id).await.map_err(from_ledger)?;
    Ok(record.map_or_else(|| not_dead(id), |record| queue_full(gateway, &record.queue)))
}

/// `POST /api/v1/dead-letters/requeue`: `{ids}` or `{filter}`, let out at `ratePerSecond` if that is given.
pub async fn many(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    audit: Audit,
    request: Request,
) -> Result<Response, ApiError> {
    check(&principal)?;
    check_writable(gateway.ledger.health())?;
    let mut fields = Fields::new(read_json(request, &gateway.limits).await?);
    let rate = fields.count(RATE, 1..=RATE_MAX);
    let by_ids = fields.has(IDS);
    let ids = if by_ids { read_ids(&mut fields, &gateway) } else { Some(Vec::new()) };
    let filter = match fields.take(FILTER) {
        Some(Value::Object(object)) if !by_ids => {
            let mut inner = Fields::new(object);
            let filter = read_filter(&mut inner);
            fields.absorb(inner, "filter");
            filter
        }
        None | Some(Value::Null) if by_ids => Some(Filter::default()),
        _ if by_ids => fields.fault(FILTER, "does not go with ids"),
        _ => fields.fault(FILTER, "must be an object, {} for all; or give ids"),
    };
    fields.finish()?;
    let (Some(rate), Some(ids), Some(mut filter)) = (rate, ids, filter) else {
        return Err(ApiError::internal("a field without a value and without a fault"));
    };
    let mut pace = Pace { rate, let_out: 0 };
    let mut tally = Tally::default();
    let ended = if by_ids {
        requeue(&gateway, ids, &mut pace, &mut tally).await
    } else {
        filter.status = Some(Status::Dead);
        by_filter(&gateway, filter, &mut pace, &mut tally).await
    };
    // A failure on the way does not undo what came before it.
    audit.record("dead letters requeued", format_args!("{} messages", tally.requeued));
    ended?;
    answer::json(StatusCode::OK, &tally)
}

async fn by_filter(
    gateway: &Gateway,
    filter: Filter,
    pace: &mut Pace,
    tally: &mut Tally,
) -> Result<(), ApiError> {
    let mut after = None;
    // What dies again meanwhile keeps its place in the list, before `after`: this ends.
    loop {
        let max = PAGE.min(BY_FILTER_MAX - tally.requeued);
        let page = Page { max, body_bytes_max: None, after };
        let listing = gateway.queues.list(filter.clone(), page).await.map_err(from_ledger)?;
        tally.damaged += listing.damaged.len();
        let ids = listing.messages.iter().map(|record| record.id).collect();
        requeue(gateway, ids, pace, tally).await?;
        after = listing.next;
        if after.is_none() || tally.full > 0 || tally.requeued >= BY_FILTER_MAX {
            tally.more = after.is_some();
            return Ok(());
        }
    }
}

async fn requeue(
    gateway: &Gateway,
    ids: Vec<MessageId>,
    pace: &mut Pace,
    tally: &mut Tally,
) -> Result<(), ApiError> {
    let batch: Vec<_> =
        ids.into_iter().map(|id| Requeue { id, body: None, delay_ms: pace.next_delay_ms() }).collect();
    if batch.is_empty() {
        return Ok(());
    }
    for requeued in gateway.queues.requeue(batch).await.map_err(from_ledger)? {
        match requeued {
            Requeued::Requeued => tally.requeued += 1,
            Requeued::NotDead => tally.not_dead += 1,
            Requeued::Full | Requeued::QueueFull => tally.full += 1,
            Requeued::Expired => tally.expired += 1,
        }
    }
    Ok(())
}

/// Spreads requeued messages over time, so that a provider that has just come back is not run over.
struct Pace {
    rate: Option<u64>,
    let_out: u64,
}

impl Pace {
    fn next_delay_ms(&mut self) -> u64 {
        let delay_ms = self.rate.map_or(0, |rate| self.let_out.saturating_mul(1_000) / rate);
        self.let_out += 1;
        delay_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_never_lets_out_more_than_its_rate() {
        let mut pace = Pace { rate: Some(3), let_out: 0 };
        let delays: Vec<_> = (0..7).map(|_| pace.next_delay_ms()).collect();
        assert_eq!(delays, [0, 333, 666, 1_000, 1_333, 1_666, 2_000]);
        assert_eq!(Pace { rate: None, let_out: 9 }.next_delay_ms(), 0);
    }
}

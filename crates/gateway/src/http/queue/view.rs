use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use tidegate_domain::{Filter, MessageRecord, Page, QueueName, Status, Timestamp};
use tidegate_edge::{ApiError, Principal};

use super::{CONSUMER_GROUP, group, no_value};
use crate::http::answer::{iso, json};
use crate::http::failure::{check_admin, from_ledger};
use crate::http::fields::Name;
use crate::http::{Gateway, options};

const MESSAGE_COUNT: Name = Name::new("messageCount", "message_count");
const CONSUMED: Name = Name::new("consumed", "consumed");

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ViewedMessage {
    id: String,
    content: String,
    consumer_group: String,
    created_at: String,
    consumed: bool,
}

/// `GET /queue/view`: messages of the group, oldest first, as they are. Looking changes nothing.
pub async fn view(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    request: Request,
) -> Result<Response, ApiError> {
    check_admin(&principal, "queues are viewed by")?;
    let max = gateway.queue_settings.view_max;
    let mut fields = options::fields(&request, &[CONSUMER_GROUP, MESSAGE_COUNT, CONSUMED])?;
    let queue = group(&mut fields);
    let count = fields.count(MESSAGE_COUNT, 1..=max as u64);
    if let Some(None) = count {
        fields.fault::<()>(MESSAGE_COUNT, "is missing");
    }
    let consumed = fields.optional(CONSUMED, yes_or_no);
    fields.finish()?;
    let (Some(queue), Some(Some(count)), Some(consumed)) = (queue, count, consumed) else {
        return Err(no_value());
    };
    let count = usize::try_from(count).unwrap_or(max);
    let found = find(&gateway, &queue, count, consumed).await?;
    let viewed: Vec<_> = found.iter().map(viewed).collect();
    json(StatusCode::OK, &viewed)
}

async fn find(
    gateway: &Gateway,
    queue: &QueueName,
    count: usize,
    consumed: Option<bool>,
) -> Result<Vec<MessageRecord>, ApiError> {
    let retention_ms = gateway.queue_settings.of(queue).retention_ms;
    let filter = Filter {
        queue: Some(queue.clone()),
        status: consumed.map(|consumed| if consumed { Status::Delivered } else { Status::Pending }),
        from: retention_ms.map(|ms| gateway.clock.now().minus_ms(ms)).map(after),
        ..Filter::default()
    };
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = Page { max: count - found.len(), after };
        let listing = gateway.queues.list(filter.clone(), page).await.map_err(from_ledger)?;
        let seen = |record: &MessageRecord| matches!(record.status, Status::Pending | Status::Delivered);
        found.extend(listing.messages.into_iter().filter(seen));
        after = listing.next;
        if found.len() >= count || after.is_none() {
            break;
        }
    }
    // A list is in the order of ids, which carry the time; a clock set back between two starts is all that could
    // make a difference.
    found.sort_by_key(|record| record.admitted_at);
    Ok(found)
}

/// What is exactly as old as the retention is gone.
fn after(at: Timestamp) -> Timestamp {
    at.plus_ms(1)
}

fn viewed(record: &MessageRecord) -> ViewedMessage {
    ViewedMessage {
        id: record.id.to_string(),
        content: String::from_utf8_lossy(&record.body).into_owned(),
        consumer_group: record.queue.to_string(),
        created_at: iso(record.admitted_at),
        consumed: record.status == Status::Delivered,
    }
}

fn yes_or_no(text: &str) -> Result<bool, &'static str> {
    match text.to_ascii_lowercase().as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("must be \"yes\" or \"no\""),
    }
}

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use tidegate_domain::{BATCH_BYTES_MAX, Filter, Lane, MessageId, Page, QueueName, Recipient, Status, UserId};
use tidegate_edge::{ApiError, Principal};

use super::answer;
use super::record::{DamagedAnswer, MessageAnswer, damaged, status};
use crate::http::answer::json;
use crate::http::envelope::RECIPIENT;
use crate::http::failure::{check_admin, from_ledger};
use crate::http::fields::{Fields, Name, PRIORITY};
use crate::http::times::instant;
use crate::http::{Gateway, query};

const QUEUE: Name = Name::new("queue", "queue");
const STATUS: Name = Name::new("status", "status");
const USER: Name = Name::new("user", "user");
const FROM: Name = Name::new("from", "from");
const TO: Name = Name::new("to", "to");
const LIMIT: Name = Name::new("limit", "limit");
const CURSOR: Name = Name::new("cursor", "cursor");

const STATUSES: [Status; 5] =
    [Status::Pending, Status::Delivered, Status::Dead, Status::Expired, Status::Deleted];
const PAGE: u64 = 100;
const PAGE_MAX: u64 = 1_000;

#[derive(Debug, Serialize)]
struct Listed<'a> {
    messages: Vec<MessageAnswer<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    damaged: Vec<DamagedAnswer<'a>>,
    next: Option<String>,
}

/// `GET /api/v1/messages`: messages that match, oldest first, a page at a time. A page may be short, even empty, and
/// still name a next one: `next` is null at the end. Messages of others than the recipient or user asked for take no page.
pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    request: Request,
) -> Result<Response, ApiError> {
    check_admin(&principal, "messages are listed by")?;
    let mut fields = query::fields(request.uri());
    let filter = read_filter(&mut fields);
    let wanted = fields.optional(STATUS, status_of);
    let (limit, after) = (page_size(&mut fields), cursor(&mut fields));
    fields.finish()?;
    let (Some(mut filter), Some(wanted), Some(max), Some(after)) = (filter, wanted, limit, after) else {
        return Err(ApiError::internal("a field without a value and without a fault"));
    };
    filter.status = wanted;
    let place = gateway.large_answers.begin().await?;
    let page = Page { max, body_bytes_max: Some(BATCH_BYTES_MAX), after };
    let listing = gateway.queues.list(filter, page).await.map_err(from_ledger)?;
    let messages = listing.messages.iter().map(|record| answer(record, &principal)).collect();
    let listed = Listed { messages, damaged: damaged(&listing), next: listing.next.map(|id| id.to_string()) };
    Ok(place.until_sent(json(StatusCode::OK, &listed)?))
}

/// The filters that every list of messages knows.
pub fn read_filter(fields: &mut Fields) -> Option<Filter> {
    let queue = fields.optional(QUEUE, QueueName::new);
    let recipient = fields.optional(RECIPIENT, Recipient::new);
    let user =
        if fields.has(USER) { fields.user_id(USER).map(Some) } else { fields.optional(USER, UserId::new) };
    let lane = fields.optional(PRIORITY, |text| text.to_ascii_lowercase().parse::<Lane>());
    let (from, to) = (fields.optional(FROM, instant), fields.optional(TO, instant));
    Some(Filter {
        queue: queue?,
        status: None,
        ended: false,
        recipient: recipient?,
        user: user?,
        lane: lane?,
        from: from?,
        to: to?,
    })
}

pub fn page_size(fields: &mut Fields) -> Option<usize> {
    let limit = fields.count(LIMIT, 1..=PAGE_MAX)?;
    usize::try_from(limit.unwrap_or(PAGE)).ok()
}

pub fn cursor(fields: &mut Fields) -> Option<Option<MessageId>> {
    fields.optional(CURSOR, |text| text.parse().map_err(|_| "must be the \"next\" of another page"))
}

fn status_of(text: &str) -> Result<Status, &'static str> {
    let found = STATUSES.into_iter().find(|known| status(*known) == text.to_ascii_lowercase());
    found.ok_or("must be \"pending\", \"delivered\", \"dead\", \"expired\" or \"deleted\"")
}

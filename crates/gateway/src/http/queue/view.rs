use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::{HeaderName, HeaderValue, StatusCode};
use serde::Serialize;
use tidegate_domain::{
    BATCH_BYTES_MAX, Damaged, Filter, MessageId, MessageRecord, Page, QueueName, Status, Timestamp,
};
use tidegate_edge::{ApiError, Principal};

use super::{CONSUMER_GROUP, group, no_value};
use crate::http::answer::{iso, json};
use crate::http::failure::{check_admin, from_ledger};
use crate::http::fields::Name;
use crate::http::{Gateway, options};

const MESSAGE_COUNT: Name = Name::new("messageCount", "message_count");
const CONSUMED: Name = Name::new("consumed", "consumed");
const AFTER: Name = Name::new("after", "after");
const NEXT: HeaderName = HeaderName::from_static("tidegate-next");

/// Lists that one request may ask the ledger for, per kind of message. Each is bounded in what it reads.
const PAGES_MAX: usize = 10;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ViewedMessage<'a> {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Cow<'a, str>>,
    consumer_group: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    consumed: Option<bool>,
    /// What is wrong with a message that is not what was written. Nothing of it is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged: Option<&'a str>,
}

/// `GET /queue/view`: messages of the group, oldest first, as they are. Looking changes nothing.
///
/// One request reads so much and no more. When there may be further messages, the header `Tidegate-Next` says after
/// which one to go on, even if this answer holds fewer than were asked for.
pub async fn view(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    request: Request,
) -> Result<Response, ApiError> {
    check_admin(&principal, "queues are viewed by")?;
    let max = gateway.queue_settings.view_max;
    let mut fields = options::fields(&request, &[CONSUMER_GROUP, MESSAGE_COUNT, CONSUMED, AFTER]);
    let queue = group(&mut fields);
    let count = fields.count(MESSAGE_COUNT, 1..=max as u64);
    if let Some(None) = count {
        fields.fault::<()>(MESSAGE_COUNT, "is missing");
    }
    let consumed = fields.parsed_or(CONSUMED, || None, yes_no_or_all);
    let after = fields.optional(AFTER, |text| text.parse().map_err(|_| "must be a Tidegate-Next"));
    fields.finish()?;
    let (Some(queue), Some(Some(count)), Some(consumed), Some(after)) = (queue, count, consumed, after)
    else {
        return Err(no_value());
    };
    let count = usize::try_from(count).unwrap_or(max);
    let place = gateway.large_answers.begin().await?;
    let view = View { gateway: &gateway, queue, count, after };
    let Found { mut records, damaged, next } = view.find(consumed).await?;
    // A list is in the order of ids, which carry the time; a clock set back between two starts is all that could
    // make a difference.
    records.sort_by_key(|record| record.admitted_at);
    let broken = damaged.iter().map(|damaged| broken(&view.queue, damaged));
    let viewed: Vec<_> = records.iter().map(viewed).chain(broken).collect();
    let mut response = json(StatusCode::OK, &viewed)?;
    if let Some(next) = next.and_then(|id| HeaderValue::try_from(id.to_string()).ok()) {
        response.headers_mut().insert(NEXT, next);
    }
    Ok(place.until_sent(response))
}

struct View<'a> {
    gateway: &'a Gateway,
    queue: QueueName,
    count: usize,
    after: Option<MessageId>,
}

#[derive(Default)]
struct Found {
    records: Vec<MessageRecord>,
    damaged: Vec<Damaged>,
    next: Option<MessageId>,
}

impl View<'_> {
    /// Consumed and waiting messages are looked for apart: what ended otherwise is then not even read. Waiting ones
    /// first, because a message that is popped in between is then met twice, and not missed.
    async fn find(&self, consumed: Option<bool>) -> Result<Found, ApiError> {
        match consumed {
            Some(true) => self.some(Status::Delivered, BATCH_BYTES_MAX).await,
            Some(false) => self.some(Status::Pending, BATCH_BYTES_MAX).await,
            None => {
                let waiting = self.some(Status::Pending, BATCH_BYTES_MAX / 2).await?;
                let delivered = self.some(Status::Delivered, BATCH_BYTES_MAX / 2).await?;
                Ok(merge(waiting, delivered, self.count))
            }
        }
    }

    /// Stops at half of the bytes: a page is of one message at least, whatever is left.
    async fn some(&self, status: Status, bytes_max: usize) -> Result<Found, ApiError> {
        let retention_ms = self.gateway.queue_settings.of(&self.queue).retention_ms;
        let filter = Filter {
            queue: Some(self.queue.clone()),
            status: Some(status),
            from: retention_ms.map(|ms| self.gateway.clock.now().minus_ms(ms)).map(after),
            ..Filter::default()
        };
        let (mut found, mut bytes) = (Found { next: self.after, ..Found::default() }, 0);
        for _ in 0..PAGES_MAX {
            let body_bytes_max = Some(bytes_max.saturating_sub(bytes));
            let page = Page { max: self.count - found.count(), body_bytes_max, after: found.next };
            let listing = self.gateway.queues.list(filter.clone(), page).await.map_err(from_ledger)?;
            bytes += listing.messages.iter().map(MessageRecord::text_bytes).sum::<usize>();
            found.records.extend(listing.messages);
            found.damaged.extend(listing.damaged);
            found.next = listing.next;
            if found.count() >= self.count || bytes >= bytes_max / 2 || found.next.is_none() {
                break;
            }
        }
        Ok(found)
    }
}

impl Found {
    fn count(&self) -> usize {
        self.records.len() + self.damaged.len()
    }

    fn last(&self) -> Option<MessageId> {
        let ids =
            [self.records.last().map(|record| record.id), self.damaged.last().map(|damaged| damaged.id)];
        ids.into_iter().flatten().max_by_key(|id| id.seq())
    }
}

/// Two lists as one. Where one of them was not read to its end, the other can't be told beyond that.
fn merge(waiting: Found, delivered: Found, count: usize) -> Found {
    let mut next = [waiting.next, delivered.next].into_iter().flatten().min_by_key(|id| id.seq());
    let sound = waiting.records.into_iter().chain(delivered.records);
    let damaged = waiting.damaged.into_iter().chain(delivered.damaged);
    // Both lists come across what is damaged.
    let mut found: BTreeMap<u64, _> = damaged.map(|damaged| (damaged.id.seq(), Err(damaged))).collect();
    found.extend(sound.map(|record| (record.id.seq(), Ok(record))));
    if let Some(beyond) = next {
        found.split_off(&(beyond.seq() + 1));
    }
    let mut merged = Found::default();
    for (_, one) in found {
        if merged.count() == count {
            next = merged.last();
            break;
        }
        match one {
            Ok(record) => merged.records.push(record),
            Err(damaged) => merged.damaged.push(damaged),
        }
    }
    Found { next, ..merged }
}

/// What is exactly as old as the retention is gone.
fn after(at: Timestamp) -> Timestamp {
    at.plus_ms(1)
}

fn viewed(record: &MessageRecord) -> ViewedMessage<'_> {
    ViewedMessage {
        id: record.id.to_string(),
        content: record.body.bytes().map(|bytes| String::from_utf8_lossy(bytes)),
        consumer_group: record.queue.as_str(),
        created_at: Some(iso(record.admitted_at)),
        consumed: Some(record.status == Status::Delivered),
        damaged: None,
    }
}

fn broken<'a>(queue: &'a QueueName, damaged: &'a Damaged) -> ViewedMessage<'a> {
    ViewedMessage {
        id: damaged.id.to_string(),
        content: None,
        consumer_group: queue.as_str(),
        created_at: None,
        consumed: None,
        damaged: Some(&damaged.problem),
    }
}

fn yes_no_or_all(text: &str) -> Result<Option<bool>, &'static str> {
    match text.to_ascii_lowercase().as_str() {
        "yes" => Ok(Some(true)),
        "no" => Ok(Some(false)),
        "all" => Ok(None),
        _ => Err("must be \"yes\", \"no\" or \"all\""),
    }
}

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Map, Value};
use tidegate_domain::{AttemptRecord, AttemptResult, Body, Damaged, Headers, Listing, MessageRecord, Status};
use tidegate_edge::{Principal, Role};

use super::cause::Cause;
use crate::http::answer::iso;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageAnswer<'a> {
    id: String,
    /// Grows with every message: those of one recipient go out in this order.
    sequence: u64,
    queue: &'a str,
    recipient: Option<&'a str>,
    user_id: Option<&'a str>,
    priority: &'static str,
    status: &'static str,
    idempotency_key: String,
    #[serde(flatten)]
    body: Option<Text<'a>>,
    /// It was deleted, and body and headers with it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    erased: bool,
    admitted_at: String,
    due_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Map<String, Value>>,
    /// Attempts that were made because one before them had failed, since it was admitted or requeued.
    retry_count: u32,
    ack_required: bool,
    /// How often its channel took it, to be acked by its recipient.
    ack_attempts: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivered_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settled_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'a, str>>,
    attempts: Vec<AttemptAnswer<'a>>,
}

/// A message that is not what was written: named, and not shown.
#[derive(Debug, Serialize)]
pub struct DamagedAnswer<'a> {
    id: String,
    sequence: u64,
    problem: &'a str,
}

pub fn damaged(listing: &Listing) -> Vec<DamagedAnswer<'_>> {
    let mut named = Vec::with_capacity(listing.damaged.len());
    for Damaged { id, problem } in &listing.damaged {
        named.push(DamagedAnswer { id: id.to_string(), sequence: id.seq(), problem });
    }
    named
}

/// Text as text; anything else in a form that JSON can carry unharmed.
#[derive(Debug, Serialize)]
#[serde(rename_all_fields = "camelCase", untagged)]
enum Text<'a> {
    Plain { message: &'a str },
    Bytes { body_base64: String },
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AttemptAnswer<'a> {
    number: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_ms: Option<u64>,
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'a, str>>,
}

/// What a provider said, and where it lives, is for admins; others are told the kind of failure.
pub fn answer<'a>(record: &'a MessageRecord, principal: &Principal) -> MessageAnswer<'a> {
    let told = |reason: &'a str| match principal.role == Role::Admin {
        true => Cow::Borrowed(reason),
        false => Cause::of(reason).text(),
    };
    let settled_at = record.settled_at.map(iso);
    let (delivered_at, settled_at) = match record.status {
        Status::Delivered => (settled_at, None),
        _ => (None, settled_at),
    };
    let body = record.body.bytes().map(|bytes| match std::str::from_utf8(bytes) {
        Ok(message) => Text::Plain { message },
        Err(_) => Text::Bytes { body_base64: STANDARD.encode(bytes) },
    });
    MessageAnswer {
        id: record.id.to_string(),
        sequence: record.id.seq(),
        queue: record.queue.as_str(),
        recipient: record.recipient.as_ref().map(|recipient| recipient.as_str()),
        user_id: record.user.as_ref().map(|user| user.as_str()),
        priority: record.lane.as_str(),
        status: status(record.status),
        idempotency_key: record.headers.key_of(record.id),
        body,
        erased: record.body == Body::Erased,
        admitted_at: iso(record.admitted_at),
        due_at: iso(record.due_at),
        expires_at: record.expires_at.map(iso),
        headers: headers(&record.headers),
        retry_count: retry_count(&record.attempts),
        ack_required: record.ack_required,
        ack_attempts: record.attempts.iter().filter(|one| one.result == AttemptResult::Accepted).count(),
        delivered_at,
        settled_at,
        reason: record.reason.as_deref().map(told),
        attempts: attempts(&record.attempts, told),
    }
}

/// An attempt that never ended has no record, and leaves a gap in the numbers: it had failed, too.
fn retry_count(attempts: &[AttemptRecord]) -> u32 {
    let requeued = attempts.iter().rposition(|one| one.result == AttemptResult::Requeued);
    let since = &attempts[requeued.map_or(0, |place| place + 1)..];
    let before = requeued.map_or(0, |place| attempts[place].number);
    let Some(first) = since.first() else { return 0 };
    let pairs = since.windows(2).map(|pair| {
        let failed = pair[0].result == AttemptResult::Failed;
        pair[1].number.saturating_sub(pair[0].number + 1) + u32::from(failed)
    });
    first.number.saturating_sub(before + 1) + pairs.sum::<u32>()
}

fn headers(headers: &Headers) -> Option<Map<String, Value>> {
    let given = headers.given().0;
    let pairs = given.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str())));
    (!given.is_empty()).then(|| pairs.collect())
}

/// By number. An attempt that was begun and never settled, because its lease ended or its process did, has no record: it
/// is told of where a later one shows the gap.
fn attempts<'a>(
    records: &'a [AttemptRecord],
    told: impl Fn(&'a str) -> Cow<'a, str>,
) -> Vec<AttemptAnswer<'a>> {
    let (mut shown, mut last) = (Vec::with_capacity(records.len()), 0);
    for record in records {
        shown.extend((last + 1..record.number).map(interrupted));
        shown.push(attempt(record, record.reason.as_deref().map(&told)));
        last = record.number;
    }
    shown
}

fn interrupted<'a>(number: u32) -> AttemptAnswer<'a> {
    AttemptAnswer { number, at: None, latency_ms: None, result: "interrupted", reason: None }
}

fn attempt<'a>(record: &AttemptRecord, reason: Option<Cow<'a, str>>) -> AttemptAnswer<'a> {
    let result = match record.result {
        AttemptResult::Delivered => "delivered",
        AttemptResult::Failed => "failed",
        AttemptResult::Accepted => "accepted",
        AttemptResult::Requeued => "requeued",
    };
    let (at, latency_ms) = (Some(iso(record.at)), Some(record.latency_ms));
    AttemptAnswer { number: record.number, at, latency_ms, result, reason }
}

pub fn status(status: Status) -> &'static str {
    match status {
        Status::Pending => "pending",
        Status::Delivered => "delivered",
        Status::Dead => "dead",
        Status::Expired => "expired",
        Status::Deleted => "deleted",
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tidegate_domain::{Lane, MessageId, QueueName, Timestamp};

    use super::*;

    fn record(body: &'static [u8], status: Status) -> MessageRecord {
        let at = Timestamp::from_millis(1_763_244_000_000);
        MessageRecord {
            id: MessageId::new(at, 1, 1),
            queue: QueueName::new("sms").unwrap(),
            recipient: None,
            lane: Lane::High,
            user: None,
            admitted_at: at,
            due_at: at,
            status,
            settled_at: Some(at),
            reason: Some("no such number".to_owned()),
            attempts: vec![AttemptRecord {
                number: 1,
                at,
                latency_ms: 7,
                result: AttemptResult::Failed,
                reason: None,
            }],
            expires_at: None,
            headers: tidegate_domain::Headers::default(),
            ack_required: false,
            body: Body::Whole(Bytes::from_static(body)),
        }
    }

    #[test]
    fn a_requeue_resets_the_count_of_retries() {
        use AttemptResult::{Accepted, Delivered, Failed, Requeued};
        let count = |results: &[(u32, AttemptResult)]| {
            let at = Timestamp::from_millis(0);
            let one = |(number, result)| AttemptRecord { number, at, latency_ms: 0, result, reason: None };
            retry_count(&results.iter().copied().map(one).collect::<Vec<_>>())
        };
        assert_eq!((count(&[]), count(&[(1, Delivered)]), count(&[(1, Failed)])), (0, 0, 0), "no retry yet");
        assert_eq!(
            (count(&[(1, Failed), (2, Delivered)]), count(&[(1, Failed), (2, Failed), (3, Failed)])),
            (1, 2)
        );
        // A redelivery for want of an ack is counted elsewhere.
        assert_eq!(count(&[(1, Accepted), (2, Accepted), (3, Failed), (4, Accepted)]), 1);
        // The second never ended.
        assert_eq!(count(&[(1, Failed), (3, Delivered)]), 2);
        assert_eq!((count(&[(2, Delivered)]), count(&[(1, Failed), (2, Requeued), (4, Failed)])), (1, 1));
        assert_eq!(count(&[(1, Failed), (2, Failed), (3, Requeued)]), 0);
        assert_eq!(count(&[(1, Failed), (2, Requeued), (3, Failed)]), 0);
    }

    #[test]
    fn an_attempt_that_never_ended_is_told_of() {
        let admin = Principal { name: "ops".into(), role: Role::Admin };
        let mut message = record(b"hi", Status::Dead);
        message.attempts[0].number = 3;
        let shown = serde_json::to_value(answer(&message, &admin)).unwrap();
        let told =
            |n: usize| (shown["attempts"][n]["number"].as_u64(), shown["attempts"][n]["result"].as_str());
        assert_eq!(
            [0, 1, 2].map(told),
            [(Some(1), Some("interrupted")), (Some(2), Some("interrupted")), (Some(3), Some("failed"))]
        );
        assert_eq!((shown["retryCount"].as_u64(), shown["attempts"][0].get("at")), (Some(2), None));
    }

    #[test]
    fn a_record_says_what_became_of_its_message() {
        let admin = Principal { name: "ops".into(), role: Role::Admin };
        let dead = serde_json::to_value(answer(&record(b"hi", Status::Dead), &admin)).unwrap();
        assert_eq!((&dead["status"], &dead["message"]), (&"dead".into(), &"hi".into()));
        assert_eq!(dead["settledAt"], "2025-11-15T22:00:00.000Z");
        assert_eq!(dead["attempts"][0]["latencyMs"], 7);
        assert!(dead.get("deliveredAt").is_none());
        let delivered = serde_json::to_value(answer(&record(b"\xff", Status::Delivered), &admin)).unwrap();
        assert_eq!((&delivered["bodyBase64"], &delivered["priority"]), (&"/w==".into(), &"high".into()));
        assert_eq!(delivered["deliveredAt"], "2025-11-15T22:00:00.000Z");
        assert_eq!(dead["reason"], "no such number");
        let deleted = MessageRecord { body: Body::Erased, ..record(b"", Status::Deleted) };
        let deleted = serde_json::to_value(answer(&deleted, &admin)).unwrap();
        assert_eq!((&deleted["erased"], deleted.get("message")), (&true.into(), None));
        assert!(dead.get("erased").is_none());
        let user = Principal { name: "app".into(), role: Role::User };
        let told = serde_json::to_value(answer(&record(b"hi", Status::Dead), &user)).unwrap();
        assert_eq!(told["reason"], "failed", "what a provider said is for admins");
    }
}

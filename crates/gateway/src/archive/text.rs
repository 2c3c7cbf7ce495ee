//! A message's line.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidegate_domain::transfer::{Ended, Fate, MessageEntry};
use tidegate_domain::{
    AttemptRecord, AttemptResult, Headers, Lane, QueueName, Recipient, Status, Timestamp, UserId,
};

use super::line::{Nonsense, named};

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MessageLine {
    seq: u64,
    admitted_at: i64,
    queue: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recipient: Option<String>,
    lane: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    due_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    ack_required: bool,
    /// One of both: bytes that are no text are told apart from text that looks like them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    attempts: Vec<AttemptLine>,
    /// One of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pending: Option<PendingLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<EndedLine>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AttemptLine {
    number: u32,
    at: i64,
    latency_ms: u64,
    result: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PendingLine {
    place: u64,
    spent: u32,
    failures: u32,
    acks: u32,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EndedLine {
    status: String,
    at: i64,
    /// Number and duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempt: Option<(u32, u64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

const STATUSES: [(Status, &str); 4] = [
    (Status::Delivered, "delivered"),
    (Status::Dead, "dead"),
    (Status::Expired, "expired"),
    (Status::Deleted, "deleted"),
];
const RESULTS: [(AttemptResult, &str); 3] = [
    (AttemptResult::Failed, "failed"),
    (AttemptResult::Accepted, "accepted"),
    (AttemptResult::Requeued, "requeued"),
];

pub fn line(message: MessageEntry) -> MessageLine {
    let (pending, ended) = match message.fate {
        Fate::Pending { place, spent, failures, acks } => {
            (Some(PendingLine { place, spent, failures, acks }), None)
        }
        Fate::Ended(Ended { status, at, attempt, reason }) => {
            (None, Some(EndedLine { status: word(&STATUSES, status), at: at.millis(), attempt, reason }))
        }
    };
    let (body, body_base64) = match std::str::from_utf8(&message.body) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(base64(&message.body))),
    };
    let attempt = |attempt: AttemptRecord| AttemptLine {
        number: attempt.number,
        at: attempt.at.millis(),
        latency_ms: attempt.latency_ms,
        result: word(&RESULTS, attempt.result),
        reason: attempt.reason,
    };
    MessageLine {
        seq: message.seq,
        admitted_at: message.admitted_at.millis(),
        queue: message.queue.to_string(),
        recipient: message.recipient.map(|recipient| recipient.to_string()),
        lane: message.lane.as_str().to_owned(),
        user: message.user.map(|user| user.to_string()),
        due_at: message.due_at.millis(),
        expires_at: message.expires_at.map(Timestamp::millis),
        headers: message.headers.0,
        ack_required: message.ack_required,
        body,
        body_base64,
        attempts: message.attempts.into_iter().map(attempt).collect(),
        pending,
        ended,
    }
}

pub fn message(line: MessageLine) -> Result<MessageEntry, Nonsense> {
    let fate = match (line.pending, line.ended) {
        (Some(PendingLine { place, spent, failures, acks }), None) => {
            Fate::Pending { place, spent, failures, acks }
        }
        (None, Some(EndedLine { status, at, attempt, reason })) => {
            let status = meaning(&STATUSES, &status)?;
            Fate::Ended(Ended { status, at: Timestamp::from_millis(at), attempt, reason })
        }
        _ => return Err("a message is either pending or ended".to_owned()),
    };
    let body = match (line.body, line.body_base64) {
        (Some(text), None) => Bytes::from(text),
        (None, Some(encoded)) => Bytes::from(bytes(&encoded)?),
        _ => return Err("a message has one body".to_owned()),
    };
    let headers = Headers(line.headers);
    // Whatever a line says of a deleted message's text: it is gone.
    let (body, headers) = match &fate {
        Fate::Ended(Ended { status: Status::Deleted, .. }) => (Bytes::new(), headers.erased()),
        _ => (body, headers),
    };
    let attempt = |line: AttemptLine| {
        Ok(AttemptRecord {
            number: line.number,
            at: Timestamp::from_millis(line.at),
            latency_ms: line.latency_ms,
            result: meaning(&RESULTS, &line.result)?,
            reason: line.reason,
        })
    };
    let recipient = |text: String| named("recipient", &text, Recipient::new);
    let user = |text: String| named("user", &text, UserId::new);
    Ok(MessageEntry {
        seq: line.seq,
        admitted_at: Timestamp::from_millis(line.admitted_at),
        queue: named("queue", &line.queue, QueueName::new)?,
        recipient: line.recipient.map(recipient).transpose()?,
        lane: named("lane", &line.lane, str::parse::<Lane>)?,
        user: line.user.map(user).transpose()?,
        due_at: Timestamp::from_millis(line.due_at),
        expires_at: line.expires_at.map(Timestamp::from_millis),
        headers,
        ack_required: line.ack_required,
        body,
        attempts: line.attempts.into_iter().map(attempt).collect::<Result<_, Nonsense>>()?,
        fate,
    })
}

pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub fn bytes(text: &str) -> Result<Vec<u8>, Nonsense> {
    STANDARD.decode(text).map_err(|error| format!("what should be base64 is not: {error}"))
}

/// A word that is not in the list is refused by whoever reads it.
fn word<T: PartialEq + Copy>(words: &[(T, &str)], meant: T) -> String {
    words.iter().find(|(known, _)| *known == meant).map_or("", |(_, word)| *word).to_owned()
}

fn meaning<T: Copy>(words: &[(T, &str)], word: &str) -> Result<T, Nonsense> {
    let known = words.iter().find(|(_, known)| *known == word);
    known.map(|(meant, _)| *meant).ok_or_else(|| format!("{word:?} means nothing"))
}

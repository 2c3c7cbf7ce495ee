//! How the domain's words are written in the tables.

use tidegate_domain::{AttemptResult, Headers, Lane, LedgerError, MessageId, Outcome, Status};

/// Longer than any sense, and short enough that a point in time can be added to it.
const DURATION_MS_MAX: u64 = i64::MAX as u64 / 4;

pub fn duration(ms: u64) -> i64 {
    ms.min(DURATION_MS_MAX).cast_signed()
}

/// A limit, unless it is none.
pub fn limit(count: u64) -> Option<i64> {
    i64::try_from(count).ok().filter(|count| *count < i64::MAX)
}

pub fn bounded(count: u64) -> i64 {
    limit(count).unwrap_or(i64::MAX / 2)
}

pub fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

pub fn small(value: i64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

pub fn seq(id: MessageId) -> i64 {
    id.seq().cast_signed()
}

pub fn lane_code(lane: Lane) -> i16 {
    match lane {
        Lane::High => 0,
        Lane::Normal => 1,
        Lane::Low => 2,
    }
}

pub fn lane(code: i16) -> Result<Lane, LedgerError> {
    usize::try_from(code)
        .ok()
        .and_then(|code| Lane::ALL.get(code).copied())
        .ok_or_else(|| nonsense("lane", code))
}

pub fn status_code(status: Status) -> i16 {
    match status {
        Status::Pending => 0,
        Status::Delivered => 1,
        Status::Dead => 2,
        Status::Expired => 3,
        Status::Deleted => 4,
    }
}

pub fn status(code: i16) -> Result<Status, LedgerError> {
    let all = [Status::Pending, Status::Delivered, Status::Dead, Status::Expired, Status::Deleted];
    all.into_iter().find(|status| status_code(*status) == code).ok_or_else(|| nonsense("status", code))
}

pub fn result(code: i16) -> Result<AttemptResult, LedgerError> {
    match code {
        0 => Ok(AttemptResult::Delivered),
        1 => Ok(AttemptResult::Failed),
        2 => Ok(AttemptResult::Accepted),
        4 => Ok(AttemptResult::Requeued),
        _ => Err(nonsense("attempt's result", code)),
    }
}

/// Kind, delay and reason.
pub fn outcome(outcome: Outcome) -> (i16, i64, Option<String>) {
    match outcome.within_bounds() {
        Outcome::Delivered => (0, 0, None),
        Outcome::Retry { delay_ms, reason } => (1, duration(delay_ms), Some(text(reason))),
        Outcome::Dead { reason } => (2, 0, Some(text(reason))),
        Outcome::Accepted { ack_within_ms } => (3, duration(ack_within_ms), None),
        Outcome::GivenUp { reason } => (7, 0, Some(text(reason))),
        Outcome::Expired => (4, 0, None),
        Outcome::Released => (5, 0, None),
        Outcome::Held { for_ms } => (6, duration(for_ms), None),
    }
}

/// PostgreSQL's text holds every character but one.
pub fn text(reason: String) -> String {
    if reason.contains('\0') { reason.replace('\0', "\u{fffd}") } else { reason }
}

pub fn headers_text(headers: &Headers) -> Option<String> {
    (!headers.0.is_empty()).then(|| serde_json::to_string(&headers.0).unwrap_or_default())
}

pub fn headers(text: Option<&str>) -> Result<Headers, LedgerError> {
    let Some(text) = text else { return Ok(Headers::default()) };
    let pairs = serde_json::from_str(text);
    pairs.map(Headers).map_err(|_| LedgerError::Corrupt("a message's headers are not headers".to_owned()))
}

pub fn checksum(body: &[u8]) -> i64 {
    i64::from(crc32fast::hash(body))
}

pub fn nonsense(what: &str, code: impl std::fmt::Display) -> LedgerError {
    LedgerError::Corrupt(format!("{code} is no {what}"))
}

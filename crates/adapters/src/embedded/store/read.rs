//! Look-ups beside the writer.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row};
use tidegate_domain::{
    AttemptRecord, AttemptResult, Body, Headers, Lane, MessageId, MessageRecord, Recipient, Status,
    Timestamp, UserId,
};

use super::super::line::Tries;
use super::super::rows::{AttemptRow, ChargeRow, DeadLetter, MessageRow, OutcomeRow, Past};
use super::{as_i64, checksum, get_meta, queues, schema, unsound};

pub(super) const HEAD: &str =
    "seq, at, queue, lane, due, recipient, user, count, since, checksum, expires, headers, ack";

/// A message row as it stands on disk, with the verdict on its checksums.
#[derive(Debug)]
pub(in crate::embedded) struct StoredMessage {
    pub(in crate::embedded) row: MessageRow,
    pub(in crate::embedded) head_sound: bool,
    pub(in crate::embedded) body_sound: bool,
}

/// The little of a message that says whether an id is its own, and whether it awaits an ack.
#[derive(Debug, Clone, Copy)]
pub(in crate::embedded) struct Stub {
    pub(in crate::embedded) at: Timestamp,
    pub(in crate::embedded) ack_required: bool,
}

/// A stored value that can't be what was written.
pub(super) fn nonsense(column: usize, what: &str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Null, what.to_owned().into())
}

fn headers_of(text: Option<&str>) -> Option<Headers> {
    text.map_or(Some(Headers::default()), |text| serde_json::from_str(text).ok().map(Headers))
}

/// The head of a message from the columns of [`HEAD`]; the body is left empty. The second is the checksum.
pub(super) fn head(row: &Row<'_>) -> rusqlite::Result<(MessageRow, i64)> {
    let at = Timestamp::from_millis(row.get(1)?);
    let lane: usize = row.get(3)?;
    let due: Option<i64> = row.get(4)?;
    let recipient = row.get_ref(5)?.as_str_or_null()?.map(Recipient::new).transpose();
    let user = row.get_ref(6)?.as_str_or_null()?.map(UserId::new).transpose();
    let charge = match user.map_err(|_| nonsense(6, "not a user id"))? {
        None => None,
        Some(user) => {
            Some(ChargeRow { user, count: row.get(7)?, since: Timestamp::from_millis(row.get(8)?) })
        }
    };
    let message = MessageRow {
        seq: row.get(0)?,
        at,
        queue: row.get(2)?,
        lane: *Lane::ALL.get(lane).ok_or_else(|| nonsense(3, "not a lane"))?,
        due: due.map_or(at, Timestamp::from_millis),
        recipient: recipient.map_err(|_| nonsense(5, "not a recipient"))?,
        charge,
        idempotency: None,
        expires: row.get::<_, Option<i64>>(10)?.map(Timestamp::from_millis),
        headers: headers_of(row.get_ref(11)?.as_str_or_null()?).ok_or_else(|| nonsense(11, "not headers"))?,
        ack_required: row.get(12)?,
        body: Bytes::new(),
    };
    Ok((message, row.get(9)?))
}

pub(super) fn whole(row: &Row<'_>) -> rusqlite::Result<StoredMessage> {
    let (mut message, checksum) = head(row)?;
    let body = row.get_ref(13)?.as_blob()?;
    let head_sound = checksum::head_matches(&message, checksum);
    let body_sound = checksum::body_matches(body, checksum);
    message.body = Bytes::copy_from_slice(body);
    Ok(StoredMessage { row: message, head_sound, body_sound })
}

/// Messages by ascending sequence numbers.
pub(in crate::embedded) fn messages(db: &Connection, seqs: &[u64]) -> rusqlite::Result<Vec<StoredMessage>> {
    messages_within(db, seqs, usize::MAX)
}

/// The first ones of these messages, until their texts take so many bytes. Runs of neighbours are read with one scan
/// each.
pub(in crate::embedded) fn messages_within(
    db: &Connection,
    seqs: &[u64],
    bytes_max: usize,
) -> rusqlite::Result<Vec<StoredMessage>> {
    const GAP_MAX: u64 = 16;
    let mut scan = db.prepare_cached(&format!(
        "SELECT {HEAD}, body FROM message WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq"
    ))?;
    let (mut found, mut bytes) = (Vec::with_capacity(seqs.len()), 0);
    for run in seqs.chunk_by(|a, b| b - a <= GAP_MAX) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
        let mut wanted = run.iter().peekable();
        let mut rows = scan.query([as_i64(*first), as_i64(*last)])?;
        while let Some(row) = rows.next()? {
            let seq: u64 = row.get(0)?;
            while wanted.next_if(|&&next| next < seq).is_some() {}
            if wanted.next_if(|&&next| next == seq).is_some() {
                let stored = whole(row)?;
                bytes += stored.row.text_bytes();
                found.push(stored);
                if bytes >= bytes_max {
                    return Ok(found);
                }
            }
        }
    }
    Ok(found)
}

/// Everything about one message, or `None` when there is no such id. The error names what is damaged.
pub(in crate::embedded) fn record(
    db: &Connection,
    id: MessageId,
    salt: u32,
    with_body: bool,
) -> rusqlite::Result<Option<Result<MessageRecord, String>>> {
    let seq = id.seq();
    let outcome = outcome(db, seq)?;
    let status = outcome.as_ref().map_or(Status::Pending, |outcome| outcome.status);
    // Of a deleted message there is no body to be served.
    let read_body = with_body && status != Status::Deleted;
    let stored = if read_body { messages(db, &[seq])?.pop() } else { without_body(db, seq)? };
    let Some(stored) = stored else { return Ok(None) };
    let message = stored.row;
    // Before its id is looked at: the time in it may be what is wrong.
    if !stored.head_sound {
        return Ok(Some(Err(format!("message {id} does not match its checksum"))));
    }
    if MessageId::new(message.at, seq, salt) != id {
        return Ok(None);
    }
    if !stored.body_sound {
        return Ok(Some(Err(format!("message {id} does not match its checksum"))));
    }
    let Some(queue) = queues::name(db, message.queue)? else {
        // A forgotten queue's name goes with its last message, and retention may have come between the two look-ups.
        if without_body(db, seq)?.is_none() {
            return Ok(None);
        }
        return Ok(Some(Err(format!("message {id} names queue {}, which there is not", message.queue))));
    };
    // Older ones than those that wait have ended, so one without an outcome has lost it.
    if outcome.is_none() && as_i64(seq) < get_meta(db, "live_from")?.unwrap_or(0) {
        return Ok(Some(Err(format!("message {id} has ended, and its outcome is not there"))));
    }
    let failed = attempts(db, seq)?;
    let due_at = failed.last().map_or(message.due, |attempt| attempt.due);
    let mut attempts: Vec<_> = failed.into_iter().map(AttemptRecord::from).collect();
    // Some ends are no attempts: deleted, expired while waiting, acknowledged.
    let tried = outcome.as_ref().filter(|outcome| outcome.attempt > 0);
    attempts.extend(tried.map(AttemptRecord::from));
    Ok(Some(Ok(MessageRecord {
        id,
        queue,
        recipient: message.recipient,
        lane: message.lane,
        user: message.charge.map(|charge| charge.user),
        admitted_at: message.at,
        due_at,
        status,
        settled_at: outcome.as_ref().map(|outcome| outcome.at),
        reason: outcome.and_then(|outcome| outcome.reason),
        attempts,
        expires_at: message.expires,
        headers: message.headers,
        ack_required: message.ack_required,
        body: match (with_body, status) {
            (false, _) => Body::Unread,
            (true, Status::Deleted) => Body::Erased,
            (true, _) => Body::Whole(message.body),
        },
    })))
}

fn without_body(db: &Connection, seq: u64) -> rusqlite::Result<Option<StoredMessage>> {
    let select = format!("SELECT {HEAD} FROM message WHERE seq = ?1");
    let found = db.prepare_cached(&select)?.query_row([as_i64(seq)], head).optional()?;
    let stored = |(row, sum): (MessageRow, i64)| {
        let head_sound = checksum::head_matches(&row, sum);
        StoredMessage { row, head_sound, body_sound: true }
    };
    Ok(found.map(stored))
}

/// A dead letter without its text; `None` when it is none.
pub(super) fn dead(db: &Connection, id: MessageId, salt: u32) -> rusqlite::Result<Option<DeadLetter>> {
    let seq = id.seq();
    let Some(outcome) = outcome(db, seq)?.filter(|outcome| outcome.status == Status::Dead) else {
        return Ok(None);
    };
    let with_length = |row: &Row<'_>| Ok((head(row)?, row.get::<_, u32>(13)?));
    let ((message, sum), body_bytes) = db
        .prepare_cached(&format!("SELECT {HEAD}, length(body) FROM message WHERE seq = ?1"))?
        .query_row([as_i64(seq)], with_length)
        .optional()?
        .ok_or_else(|| nonsense(0, "an outcome has no message"))?;
    if !checksum::head_matches(&message, sum) {
        return Err(nonsense(9, "a message does not match its checksum"));
    }
    if MessageId::new(message.at, seq, salt) != id {
        return Ok(None);
    }
    let before = attempts(db, seq)?.last().map_or(0, |attempt| attempt.number);
    // What comes back begins anew.
    let tries = Tries { last: outcome.attempt.max(before), ..Tries::default() };
    let last = outcome.failed_attempt(outcome.at);
    Ok(Some(DeadLetter { message, last, tries, body_bytes }))
}

/// What a message went through before it ended, for an ack that comes late.
pub(super) fn past(db: &Connection, seq: u64) -> rusqlite::Result<Past> {
    let (attempts, outcome) = (attempts(db, seq)?, outcome(db, seq)?);
    let since = attempts.iter().rev().take_while(|attempt| attempt.result != AttemptResult::Requeued);
    let accepted = since.filter(|attempt| attempt.result == AttemptResult::Accepted).count() > 0;
    let due = match attempts.last() {
        Some(attempt) => Some(attempt.due),
        None => messages(db, &[seq])?.pop().map(|stored| stored.row.due),
    };
    Ok(Past { outcome, accepted, tried: !attempts.is_empty(), due: due.unwrap_or_default() })
}

pub(in crate::embedded) fn users(
    db: &Connection,
    after: Option<&UserId>,
    max: usize,
) -> rusqlite::Result<Vec<UserId>> {
    let mut select =
        db.prepare_cached("SELECT user FROM quota WHERE user > ?1 AND max > 0 ORDER BY user LIMIT ?2")?;
    let max = i64::try_from(max).unwrap_or(i64::MAX);
    let after = after.map_or("", |user| user.as_str());
    let user =
        |row: &Row<'_>| UserId::new(row.get_ref(0)?.as_str()?).map_err(|_| nonsense(0, "not a user id"));
    select.query_map(rusqlite::params![after, max], user)?.collect()
}

fn attempts(db: &Connection, seq: u64) -> rusqlite::Result<Vec<AttemptRow>> {
    let sql = format!("SELECT {ATTEMPT} FROM attempt WHERE seq = ?1 ORDER BY number");
    let mut select = db.prepare_cached(&sql)?;
    select.query_map([as_i64(seq)], attempt)?.collect()
}

pub(super) const ATTEMPT: &str = "seq, number, at, latency_ms, reason, due, checksum, result, ord";

/// From the columns of [`ATTEMPT`].
pub(super) fn attempt(row: &Row<'_>) -> rusqlite::Result<AttemptRow> {
    let attempt = AttemptRow {
        seq: row.get(0)?,
        number: row.get(1)?,
        at: Timestamp::from_millis(row.get(2)?),
        latency_ms: row.get(3)?,
        reason: row.get(4)?,
        due: Timestamp::from_millis(row.get(5)?),
        result: schema::result_of(row.get(7)?).ok_or_else(|| nonsense(7, "not a result"))?,
        order: row.get(8)?,
    };
    let sound = checksum::of_attempt(&attempt) == row.get::<_, i64>(6)?;
    if sound { Ok(attempt) } else { Err(unsound("attempt", &format!("{}, {}", attempt.seq, attempt.number))) }
}

pub(super) const OUTCOME: &str = "seq, status, at, attempt, latency_ms, reason, checksum";

pub(super) fn outcome(db: &Connection, seq: u64) -> rusqlite::Result<Option<OutcomeRow>> {
    db.prepare_cached(&format!("SELECT {OUTCOME} FROM outcome WHERE seq = ?1"))?
        .query_row([as_i64(seq)], ended)
        .optional()
}

/// From the columns of [`OUTCOME`].
pub(super) fn ended(row: &Row<'_>) -> rusqlite::Result<OutcomeRow> {
    ended_from(row, 0)
}

/// From the columns of [`OUTCOME`], which begin at that one.
pub(super) fn ended_from(row: &Row<'_>, first: usize) -> rusqlite::Result<OutcomeRow> {
    let outcome = OutcomeRow {
        seq: row.get(first)?,
        status: schema::status_of(row.get(first + 1)?).ok_or_else(|| nonsense(1, "not a status"))?,
        at: Timestamp::from_millis(row.get(first + 2)?),
        attempt: row.get(first + 3)?,
        latency_ms: row.get(first + 4)?,
        reason: row.get(first + 5)?,
    };
    let sound = checksum::of_outcome(&outcome) == row.get::<_, i64>(first + 6)?;
    if sound { Ok(outcome) } else { Err(unsound("outcome", &outcome.seq)) }
}

impl From<AttemptRow> for AttemptRecord {
    fn from(row: AttemptRow) -> Self {
        Self {
            number: row.number,
            at: row.at,
            latency_ms: row.latency_ms,
            result: row.result,
            reason: row.reason,
        }
    }
}

impl From<&OutcomeRow> for AttemptRecord {
    fn from(row: &OutcomeRow) -> Self {
        let result = match row.status {
            Status::Delivered => AttemptResult::Delivered,
            // The others end without one.
            Status::Dead | Status::Expired | Status::Pending | Status::Deleted => AttemptResult::Failed,
        };
        Self {
            number: row.attempt,
            at: row.at,
            latency_ms: row.latency_ms,
            result,
            reason: row.reason.clone(),
        }
    }
}

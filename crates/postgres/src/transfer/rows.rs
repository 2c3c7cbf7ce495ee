//! What rows say, as entries.

use bytes::Bytes;
use tidegate_domain::limits::{Deferrals, Quota};
use tidegate_domain::transfer::{
    Ended, Entry, Fate, KeyEntry, MessageEntry, QueueEntry, QuotaEntry, SlotEntry,
};
use tidegate_domain::{
    AttemptRecord, EventId, Fingerprint, IdempotencyKey, LedgerError, MessageId, QueueName, Recipient,
    SlotConfigName, Timestamp, UserId,
};
use tokio_postgres::Row;

use crate::codes::{checksum, headers, lane, nonsense, result, small, status, unsigned};
use crate::slot_configs;

pub(super) const SALT_SIZE: u32 = MessageId::SALT_MAX + 1;
/// Tokens of one claim.
pub(super) const CLAIM_TOKENS: u64 = 65_536;

/// By number. A lease that has ended was an attempt, if that had begun; one that has not is void.
pub(super) const MESSAGES: &str = "\
SELECT m.seq, m.admitted_at, m.queue, m.recipient, m.lane, m.user_id, m.expires_at, m.headers, m.ack_required, \
    m.body, m.checksum, coalesce(o.due_at, p.due_at), a.numbers, a.ats, a.latencies, a.results, a.reasons, \
    p.place, p.spent + l.lapsed, p.failures + l.lapsed, p.acks, o.status, o.at, o.number, o.latency_ms, o.reason \
FROM message m LEFT JOIN pending p ON p.seq = m.seq LEFT JOIN outcome o ON o.seq = m.seq \
CROSS JOIN LATERAL (SELECT (p.token IS NOT NULL AND p.ends_at <= $1 AND NOT p.in_transit)::integer AS lapsed) l \
CROSS JOIN LATERAL ( \
    SELECT array_agg(t.number ORDER BY t.number) AS numbers, array_agg(t.at ORDER BY t.number) AS ats, \
        array_agg(t.latency_ms ORDER BY t.number) AS latencies, \
        array_agg(t.result ORDER BY t.number) AS results, array_agg(t.reason ORDER BY t.number) AS reasons \
    FROM attempt t WHERE t.seq = m.seq) a \
WHERE $2::bigint IS NOT NULL ORDER BY m.seq";

type Read<T> = Result<T, LedgerError>;

pub(super) fn queue(row: &Row, _: u32) -> Read<Entry> {
    Ok(Entry::Queue(QueueEntry { name: queue_name(row.get(0))?, paused: row.get(1) }))
}

pub(super) fn quota(row: &Row, _: u32) -> Read<Entry> {
    let quota = Quota {
        limit: small(row.get(1)),
        window_ms: unsigned(row.get(2)),
        count: small(row.get(3)),
        since: time(row.get(4)),
        exempts_high: row.get(7),
    };
    let (dues, counts): (Vec<i64>, Vec<i64>) = (row.get(5), row.get(6));
    let mut deferrals = Deferrals::default();
    for (due, count) in dues.into_iter().zip(counts) {
        deferrals.restore(time(due), small(count));
    }
    Ok(Entry::Quota(QuotaEntry { user: user(row.get(0))?, quota, deferrals }))
}

pub(super) fn slot_config(row: &Row, _: u32) -> Read<Entry> {
    let name = SlotConfigName::new(row.get(6)).map_err(|error| nonsense("slot configuration", error))?;
    Ok(Entry::SlotConfig(slot_configs::config(&name, row)?))
}

pub(super) fn slot(row: &Row, _: u32) -> Read<Entry> {
    Ok(Entry::Slot(SlotEntry {
        event: EventId::new(row.get(0)).map_err(|error| nonsense("event", error))?,
        config: SlotConfigName::new(row.get(1)).map_err(|error| nonsense("slot configuration", error))?,
        generation: small(row.get::<_, i32>(2).into()),
        window: row.get(3),
        requested: time(row.get(4)),
        scheduled: time(row.get(5)),
        created_at: time(row.get(6)),
        message: row.get::<_, Option<i64>>(7).map(unsigned),
    }))
}

pub(super) fn key(row: &Row, _: u32) -> Read<Entry> {
    let hash = |bytes: &[u8]| bytes.try_into().map_err(|_| nonsense("key", "a hash of another length"));
    Ok(Entry::Key(KeyEntry {
        key: IdempotencyKey(hash(row.get(0))?),
        fingerprint: Fingerprint(hash(row.get(1))?),
        seq: unsigned(row.get(2)),
        admitted_at: time(row.get(3)),
    }))
}

pub(super) fn message(row: &Row, salt: u32) -> Read<Entry> {
    let (seq, admitted_at) = (unsigned(row.get(0)), time(row.get(1)));
    let damaged =
        |said| LedgerError::Corrupt(format!("message {}: {said}", MessageId::new(admitted_at, seq, salt)));
    let body: &[u8] = row.get(9);
    if checksum(body) != row.get::<_, i64>(10) {
        return Err(damaged("its text does not match its checksum"));
    }
    let recipient = row.get::<_, Option<&str>>(3).map(Recipient::new).transpose();
    let due_at: Option<i64> = row.get(11);
    Ok(Entry::Message(Box::new(MessageEntry {
        seq,
        admitted_at,
        queue: queue_name(row.get(2))?,
        recipient: recipient.map_err(|error| nonsense("recipient", error))?,
        lane: lane(row.get(4))?,
        user: row.get::<_, Option<&str>>(5).map(user).transpose()?,
        due_at: due_at.map(time).ok_or_else(|| damaged("it neither waits nor has ended"))?,
        expires_at: row.get::<_, Option<i64>>(6).map(time),
        headers: headers(row.get(7))?,
        ack_required: row.get(8),
        body: Bytes::copy_from_slice(body),
        attempts: attempts(row)?,
        fate: fate(row)?,
    })))
}

fn fate(row: &Row) -> Read<Fate> {
    if let Some(place) = row.get::<_, Option<i64>>(17) {
        let [spent, failures, acks] = [18, 19, 20].map(|column| small(row.get::<_, i32>(column).into()));
        return Ok(Fate::Pending { place: unsigned(place), spent, failures, acks });
    }
    let number: Option<i32> = row.get(23);
    let latency_ms = unsigned(row.get::<_, Option<i64>>(24).unwrap_or(0));
    Ok(Fate::Ended(Ended {
        status: status(row.get(21))?,
        at: time(row.get(22)),
        attempt: number.map(|number| (small(number.into()), latency_ms)),
        reason: row.get(25),
    }))
}

fn attempts(row: &Row) -> Read<Vec<AttemptRecord>> {
    let Some(numbers) = row.get::<_, Option<Vec<i32>>>(12) else { return Ok(Vec::new()) };
    let (ats, latencies): (Vec<i64>, Vec<i64>) = (row.get(13), row.get(14));
    let (results, reasons): (Vec<i16>, Vec<Option<String>>) = (row.get(15), row.get(16));
    let columns = numbers.into_iter().zip(ats).zip(latencies).zip(results).zip(reasons);
    let attempts = columns.map(|((((number, at), latency_ms), code), reason)| {
        Ok(AttemptRecord {
            number: small(number.into()),
            at: time(at),
            latency_ms: unsigned(latency_ms),
            result: result(code)?,
            reason,
        })
    });
    attempts.collect()
}

fn time(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn queue_name(name: &str) -> Read<QueueName> {
    QueueName::new(name).map_err(|_| nonsense("queue", name))
}

fn user(id: &str) -> Read<UserId> {
    UserId::new(id).map_err(|error| nonsense("user", error))
}

//! The rows of a group.

use std::sync::LazyLock;

use rusqlite::params;
use tidegate_domain::limits::Deferrals;
use tidegate_domain::{Headers, Idempotency, Timestamp};

use super::super::book::Group;
use super::super::rows::{AttemptRow, MessageRow, OutcomeRow, QuotaRow};
use super::insert::{Insert, Values};
use super::{Store, StoreError, as_i64, blocks, checksum, dead, erase, queues, schema, set_meta, slots};

/// Most messages have no more than these.
const PLAIN: [&str; 8] = ["seq", "at", "queue", "lane", "checksum", "ack", "recipient", "body"];
const MORE: [&str; 6] = ["due", "user", "count", "since", "expires", "headers"];

static INSERT_PLAIN: LazyLock<Insert> = LazyLock::new(|| Insert::new("message", &PLAIN));
static INSERT_WHOLE: LazyLock<Insert> =
    LazyLock::new(|| Insert::new("message", &[&PLAIN[..], &MORE[..]].concat()));
static INSERT_KEY: LazyLock<Insert> =
    LazyLock::new(|| Insert::new("key", &["seq", "at", "key", "fingerprint", "checksum"]));
static INSERT_OUTCOME: LazyLock<Insert> = LazyLock::new(|| {
    Insert::new("outcome", &["seq", "status", "at", "attempt", "latency_ms", "checksum", "reason"])
});

impl Store {
    pub(in crate::embedded) fn write_rows(&self, group: &Group) -> Result<(), StoreError> {
        let write = || -> rusqlite::Result<()> {
            let db = &self.connection;
            queues::write(db, group)?;
            self.write_messages(&group.messages)?;
            blocks::write(db, &group.messages)?;
            INSERT_OUTCOME.run(db, &group.outcomes, put_outcome)?;
            self.write_attempts(group.attempts.iter())?;
            dead::write(self, group)?;
            erase::write(db, &group.erased)?;
            for user in &group.quotas_deleted {
                db.prepare_cached("DELETE FROM quota WHERE user = ?1")?.execute([user.as_str()])?;
            }
            self.write_quotas(&group.quotas)?;
            slots::write(db, group)?;
            if let Some(seq) = group.quotas_flushed {
                set_meta(db, "quota_seq", as_i64(seq))?;
            }
            Ok(())
        };
        write().map_err(|e| self.error(e))
    }

    fn write_messages(&self, messages: &[MessageRow]) -> rusqlite::Result<()> {
        for alike in messages.chunk_by(|a, b| is_plain(a) == is_plain(b)) {
            if alike.first().is_some_and(is_plain) {
                INSERT_PLAIN.run(&self.connection, alike, put_plain)?;
            } else {
                INSERT_WHOLE.run(&self.connection, alike, put_whole)?;
            }
        }
        let keyed = |message: &MessageRow| Some((message.seq, message.at, message.idempotency?));
        self.write_keys(&messages.iter().filter_map(keyed).collect::<Vec<_>>())
    }

    pub(super) fn write_keys(&self, keys: &[(u64, Timestamp, Idempotency)]) -> rusqlite::Result<()> {
        INSERT_KEY.run(&self.connection, keys, |(seq, at, idempotency), values| {
            values.put_all([as_i64(*seq), at.millis()])?;
            values.put(&idempotency.key.0[..])?;
            values.put(&idempotency.fingerprint.0[..])?;
            values.put(checksum::of_key(*seq, *at, idempotency))
        })
    }

    pub(super) fn write_outcomes<'a>(
        &self,
        outcomes: impl Iterator<Item = &'a OutcomeRow>,
    ) -> rusqlite::Result<()> {
        let outcomes: Vec<OutcomeRow> = outcomes.cloned().collect();
        INSERT_OUTCOME.run(&self.connection, &outcomes, put_outcome)
    }

    pub(super) fn write_attempts<'a>(
        &self,
        attempts: impl Iterator<Item = &'a AttemptRow>,
    ) -> rusqlite::Result<()> {
        let mut attempts = attempts.peekable();
        if attempts.peek().is_none() {
            return Ok(());
        }
        let mut insert = self.connection.prepare_cached(
            "INSERT INTO attempt (seq, number, at, latency_ms, due, reason, checksum, result, ord)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?;
        for attempt in attempts {
            insert.execute(params![
                as_i64(attempt.seq),
                attempt.number,
                attempt.at.millis(),
                as_i64(attempt.latency_ms),
                attempt.due.millis(),
                attempt.reason,
                checksum::of_attempt(attempt),
                schema::result_code(attempt.result),
                as_i64(attempt.order),
            ])?;
        }
        Ok(())
    }

    fn write_quotas(&self, quotas: &[QuotaRow]) -> rusqlite::Result<()> {
        if quotas.is_empty() {
            return Ok(());
        }
        let mut upsert = self.connection.prepare_cached(
            "INSERT OR REPLACE INTO quota (user, max, window_ms, count, since, deferred, seq, checksum, exempts_high)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?;
        for row in quotas {
            let quota = row.account.quota;
            upsert.execute(params![
                row.user.as_str(),
                quota.limit,
                as_i64(quota.window_ms),
                quota.count,
                quota.since.millis(),
                deferred_text(&row.account.deferrals),
                as_i64(row.seq),
                checksum::of_quota(row),
                quota.exempts_high,
            ])?;
        }
        Ok(())
    }
}

fn is_plain(message: &MessageRow) -> bool {
    message.due == message.at
        && message.charge.is_none()
        && message.expires.is_none()
        && message.headers.0.is_empty()
}

fn put_plain(message: &MessageRow, values: &mut Values<'_, '_>) -> rusqlite::Result<()> {
    values.put_all([as_i64(message.seq), message.at.millis(), i64::from(message.queue)])?;
    values.put(message.lane.index())?;
    values.put(checksum::of_message(message))?;
    values.put(message.ack_required)?;
    values.put(message.recipient.as_ref().map(|recipient| recipient.as_str()))?;
    values.put(message.body.as_ref())
}

fn put_whole(message: &MessageRow, values: &mut Values<'_, '_>) -> rusqlite::Result<()> {
    put_plain(message, values)?;
    let charge = message.charge.as_ref();
    values.put((message.due != message.at).then(|| message.due.millis()))?;
    values.put(charge.map(|charge| charge.user.as_str()))?;
    values.put(charge.map(|charge| charge.count))?;
    values.put(charge.map(|charge| charge.since.millis()))?;
    values.put(message.expires.map(Timestamp::millis))?;
    values.put(headers_text(&message.headers))
}

fn put_outcome(outcome: &OutcomeRow, values: &mut Values<'_, '_>) -> rusqlite::Result<()> {
    values.put_all([as_i64(outcome.seq), schema::status_code(outcome.status), outcome.at.millis()])?;
    values.put_all([outcome.attempt.into(), as_i64(outcome.latency_ms), checksum::of_outcome(outcome)])?;
    values.put(outcome.reason.as_deref())
}

pub(super) fn headers_text(headers: &Headers) -> Option<String> {
    // A list of pairs of strings always has a text.
    (!headers.0.is_empty()).then(|| serde_json::to_string(&headers.0).unwrap_or_default())
}

fn deferred_text(deferrals: &Deferrals) -> String {
    let dues = deferrals.dues().map(|(due, count)| format!("{}:{count}", due.millis()));
    dues.collect::<Vec<_>>().join(" ")
}

pub(super) fn deferred_of(text: &str) -> Option<Deferrals> {
    let mut deferrals = Deferrals::default();
    for due in text.split_ascii_whitespace() {
        let (due, count) = due.split_once(':')?;
        deferrals.restore(Timestamp::from_millis(due.parse().ok()?), count.parse().ok()?);
    }
    Some(deferrals)
}

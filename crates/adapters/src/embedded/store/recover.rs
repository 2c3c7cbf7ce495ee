//! Rebuilding the book from live rows.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use tidegate_domain::limits::Quota;
use tidegate_domain::{Fingerprint, Idempotency, IdempotencyKey, QueueName, Timestamp, UserId};

use super::super::book::{Book, BookLimits};
use super::super::line::{Arrival, Tries};
use super::super::queues::QueueRules;
use super::super::quotas::Account;
use super::super::rows::{MessageRow, QueueRow, QuotaRow};
use super::queues::sum_of_queue;
use super::read::HEAD;
use super::write::deferred_of;
use super::{Store, StoreError, checksum, get_meta, read, unsound};

/// The book as it stood after the last commit. Leases are void.
#[derive(Debug)]
pub(in crate::embedded) struct Recovered {
    pub(in crate::embedded) book: Book,
    pub(in crate::embedded) pending: u64,
}

/// What the attempts of a pending message say.
#[derive(Debug, Clone, Copy, Default)]
struct Tried {
    tries: Tries,
    due: Timestamp,
    order: u64,
}

impl Store {
    pub(in crate::embedded) fn recover(
        &self,
        limits: BookLimits,
        rules: QueueRules,
        now: Timestamp,
    ) -> Result<Recovered, StoreError> {
        self.check_rows()?;
        let salt = self.meta("salt")?.unwrap_or(0);
        let mut book = Book::new(u32::try_from(salt).unwrap_or(0), limits, rules);
        self.recover_queues(&mut book)?;
        let contained = self.recover_quotas(&mut book)?;
        self.recover_keys(&mut book, now.minus_ms(limits.idempotency_window_ms))?;
        self.recover_slots(&mut book)?;
        let order_max = self.recover_messages(&mut book, &contained, now)?;
        // A group that was given up may have used numbers that only a quota's row remembers. Used again, they would
        // look like charges that the row contains.
        let seq_known = contained.values().copied().max().unwrap_or(0).max(self.quota_seq()?).max(order_max);
        let pending = self.recover_totals(&mut book, seq_known)?;
        Ok(Recovered { book, pending })
    }

    pub(super) fn recover_queues(&self, book: &mut Book) -> Result<(), StoreError> {
        self.each("SELECT id, name, paused, live, checksum FROM queue ORDER BY id", [], |row| {
            let id: i64 = row.get(0)?;
            let stored = queue_of(row).ok().flatten().ok_or_else(|| unsound("queue", &id))?;
            Ok(book.queues.restore(stored))
        })
        .and_then(|sound| self.require(sound, "the table of queues makes no sense"))
    }

    /// Returns up to which message each quota's own row contains its charges.
    pub(super) fn recover_quotas(&self, book: &mut Book) -> Result<HashMap<UserId, u64>, StoreError> {
        let mut contained: HashMap<UserId, u64> = HashMap::new();
        self.each(&format!("SELECT {QUOTA} FROM quota"), [], |row| {
            let user = String::from_utf8_lossy(row.get_ref(0)?.as_bytes()?);
            let stored = quota_of(row).ok().flatten().ok_or_else(|| unsound("quota", &user))?;
            book.quotas.restore(stored.user.clone(), stored.account);
            contained.insert(stored.user, stored.seq);
            Ok(true)
        })?;
        Ok(contained)
    }

    fn recover_keys(&self, book: &mut Book, since: Timestamp) -> Result<(), StoreError> {
        // All of them: one that seems too old may be damaged.
        let sql = "SELECT seq, at, key, fingerprint, checksum FROM key ORDER BY seq";
        let sound = self.each(sql, [], |row| {
            let (seq, at, idempotency) = key_of(row)?;
            if at > since {
                book.keys.insert(&idempotency, seq, at);
            }
            Ok(true)
        })?;
        self.require(sound, "the table of keys makes no sense")
    }

    /// Returns the largest place that a requeued message was given in the order of admission.
    fn recover_messages(
        &self,
        book: &mut Book,
        contained: &HashMap<UserId, u64>,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let live_from = self.mark("live_from")?;
        let (tried, order_max) = self.recover_attempts(live_from, now)?;
        let mut requeued: BTreeMap<u64, (MessageRow, u32)> = BTreeMap::new();
        // Charges that the quotas' own rows don't contain yet stand in the messages', pending or not.
        let quota_seq = self.quota_seq()?;
        let from = live_from.min(quota_seq + 1);
        let sql = format!(
            "SELECT {HEAD}, EXISTS (SELECT 1 FROM outcome WHERE outcome.seq = message.seq), length(body) FROM message
             WHERE seq >= ?1 ORDER BY seq"
        );
        let sound = self.each(&sql, [from], |row| {
            let settled: bool = row.get(13)?;
            let seq: u64 = row.get(0)?;
            if settled && seq <= quota_seq {
                return Ok(true);
            }
            let head = read::head(row).ok().filter(|(message, sum)| checksum::head_matches(message, *sum));
            let (mut message, _) = head.ok_or_else(|| unsound("message", &seq))?;
            // What has ended may be of a queue that is forgotten.
            let sound = settled || book.queues.get(message.queue).is_some();
            if let Some(charge) = message.charge.take()
                && seq > quota_seq
                && contained.get(&charge.user).is_some_and(|&contained| seq > contained)
            {
                book.quotas.restore_charge(charge, message.at);
            }
            if settled || seq < live_from {
                return Ok(sound);
            }
            while let Some(earlier) = requeued.first_entry().filter(|earlier| *earlier.key() < seq) {
                let (earlier, body_bytes) = earlier.remove();
                restore(book, &earlier, body_bytes, &tried, now);
            }
            let body_bytes: u32 = row.get(14)?;
            match tried.get(&seq).map_or(0, |tried| tried.order) {
                0 => restore(book, &message, body_bytes, &tried, now),
                order => drop(requeued.insert(order, (message, body_bytes))),
            }
            Ok(sound)
        })?;
        for (message, body_bytes) in requeued.values() {
            restore(book, message, *body_bytes, &tried, now);
        }
        self.require(sound, "a message names a queue that there is not")?;
        Ok(order_max)
    }

    fn recover_attempts(
        &self,
        live_from: u64,
        now: Timestamp,
    ) -> Result<(HashMap<u64, Tried>, u64), StoreError> {
        let mut tried: HashMap<u64, Tried> = HashMap::new();
        let mut order_max = 0;
        let sql = "SELECT seq, number, at, latency_ms, reason, due, checksum, result, ord FROM attempt WHERE seq >= ?1
                   ORDER BY seq, number";
        self.each(sql, [live_from], |row| {
            let attempt = read::attempt(row)?;
            let known = tried.entry(attempt.seq).or_default();
            // Numbers may have gaps: leases that ended are not recorded.
            known.tries.last = attempt.number - 1;
            known.tries = known.tries.after(attempt.result);
            known.due = attempt.due.min(now.plus_ms(attempt.due.since_ms(attempt.at)));
            known.order = known.order.max(attempt.order);
            order_max = order_max.max(attempt.order);
            Ok(true)
        })?;
        Ok((tried, order_max))
    }

    fn recover_totals(&self, book: &mut Book, seq_known: u64) -> Result<u64, StoreError> {
        let sql = "SELECT coalesce(max(seq), 0) FROM message";
        let seq_max: u64 = self.connection.query_row(sql, [], |row| row.get(0)).map_err(|e| self.error(e))?;
        let seq_last = seq_max.max(self.mark("seq_last")?).max(seq_known).max(self.head.reached.seq_last);
        let (totals, found) = (self.head.totals, book.line.len());
        if totals.pending() != Some(found) {
            let message = format!("the books don't balance: {totals:?}, yet {found} messages are pending");
            return Err(StoreError::damaged(&self.path, message));
        }
        book.restore_totals(totals, seq_last);
        Ok(found)
    }

    /// Runs over rows until one makes no sense.
    pub(super) fn each<P: rusqlite::Params>(
        &self,
        sql: &str,
        params: P,
        mut step: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<bool>,
    ) -> Result<bool, StoreError> {
        let run = || {
            let mut select = self.connection.prepare(sql)?;
            let mut rows = select.query(params)?;
            while let Some(row) = rows.next()? {
                if !step(row)? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        run().map_err(|e| self.error(e))
    }

    pub(super) fn require(&self, sound: bool, otherwise: &str) -> Result<(), StoreError> {
        if sound { Ok(()) } else { Err(StoreError::damaged(&self.path, otherwise)) }
    }

    pub(super) fn meta(&self, name: &str) -> Result<Option<i64>, StoreError> {
        get_meta(&self.connection, name).map_err(|e| self.error(e))
    }

    /// A number that only grows; zero before it is first written.
    pub(super) fn mark(&self, name: &str) -> Result<u64, StoreError> {
        Ok(self.meta(name)?.and_then(|value| u64::try_from(value).ok()).unwrap_or(0))
    }

    /// The last message whose charge the quotas' own rows contain.
    pub(in crate::embedded) fn quota_seq(&self) -> Result<u64, StoreError> {
        self.mark("quota_seq")
    }
}

pub(super) const QUOTA: &str = "user, max, window_ms, count, since, seq, checksum, deferred, exempts_high";

/// From the columns of [`QUOTA`]; none when it is not what was written.
pub(super) fn quota_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<QuotaRow>> {
    let user: String = row.get(0)?;
    let Ok(user) = UserId::new(&user) else { return Ok(None) };
    let since = Timestamp::from_millis(row.get(4)?);
    let (limit, window_ms, count) = (row.get(1)?, row.get(2)?, row.get(3)?);
    let quota = Quota { limit, window_ms, count, since, exempts_high: row.get(8)? };
    let Some(deferrals) = deferred_of(row.get_ref(7)?.as_str()?) else { return Ok(None) };
    let stored = QuotaRow { user, account: Account { quota, deferrals }, seq: row.get(5)? };
    let sound = checksum::of_quota(&stored) == row.get::<_, i64>(6)?;
    Ok(sound.then_some(stored))
}

/// From the columns id, name, paused, live, checksum; none when it is not what was written.
pub(super) fn queue_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<QueueRow>> {
    let name: String = row.get(1)?;
    let Ok(name) = QueueName::new(&name) else { return Ok(None) };
    let stored = QueueRow { id: row.get(0)?, name, paused: row.get(2)?, live: row.get(3)? };
    let sound = sum_of_queue(&stored) == row.get::<_, i64>(4)?;
    Ok(sound.then_some(stored))
}

/// From the columns seq, at, key, fingerprint, checksum.
pub(super) fn key_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<(u64, Timestamp, Idempotency)> {
    let seq = row.get(0)?;
    let at = Timestamp::from_millis(row.get(1)?);
    let idempotency = Idempotency { key: IdempotencyKey(row.get(2)?), fingerprint: Fingerprint(row.get(3)?) };
    let sound = checksum::of_key(seq, at, &idempotency) == row.get::<_, i64>(4)?;
    if sound { Ok((seq, at, idempotency)) } else { Err(unsound("key", &seq)) }
}

fn restore(
    book: &mut Book,
    message: &MessageRow,
    body_bytes: u32,
    tried: &HashMap<u64, Tried>,
    now: Timestamp,
) {
    // A clock set back while nothing ran must not make anything wait that did not have to.
    let due = if message.due == message.at { message.due.min(now) } else { message.due };
    let tried = tried.get(&message.seq);
    book.restore_message(&Arrival {
        seq: message.seq,
        queue: message.queue,
        lane: message.lane,
        due: tried.map_or(due, |tried| tried.due),
        recipient: message.recipient.as_ref().map(|recipient| recipient.as_str()),
        expires: message.expires,
        tries: tried.map(|tried| tried.tries).unwrap_or_default(),
        body_bytes,
    });
}

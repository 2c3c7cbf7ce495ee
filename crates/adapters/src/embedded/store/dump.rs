//! Everything that the rows say, page by page, for an export.

use std::collections::VecDeque;

use bytes::Bytes;
use rusqlite::Row;
use tidegate_domain::transfer::{
    Books, Ended, Entry, Fate, Inventory, KeyEntry, Kind, Manifest, MessageEntry, QuotaEntry, Stock,
};
use tidegate_domain::{AttemptRecord, Idempotency, MessageId, QueueName, SlotConfig, Status, Timestamp};

use super::super::book::{Book, TOKEN_BITS};
use super::super::line::Tries;
use super::super::rows::{AttemptRow, MessageRow, OutcomeRow, SlotRow, Totals};
use super::read::{self, ATTEMPT, HEAD, OUTCOME, StoredMessage};
use super::slots::{SLOT, slot_of};
use super::{Store, StoreError, StoreErrorKind, as_i64, checksum, gaps, recover};

/// How much one page holds at the most.
const PAGE_ROWS: usize = 2_000;
const PAGE_BYTES: usize = 4 << 20;

/// Entries of one page, with the number of the last.
pub(in crate::embedded) type Page<T> = Vec<(u64, T)>;

impl Store {
    /// Whether anything was ever put into this ledger.
    pub(in crate::embedded) fn is_untouched(&self) -> Result<bool, StoreError> {
        let sql = "SELECT (SELECT admitted FROM totals) = 0 AND NOT EXISTS (SELECT 1 FROM message)
                   AND NOT EXISTS (SELECT 1 FROM quota) AND NOT EXISTS (SELECT 1 FROM slot_config)
                   AND NOT EXISTS (SELECT 1 FROM queue) AND NOT EXISTS (SELECT 1 FROM key)";
        self.connection.query_row(sql, [], |row| row.get(0)).map_err(|e| self.error(e))
    }

    pub(in crate::embedded) fn manifest(&self, keys_since: Timestamp) -> Result<Manifest, StoreError> {
        let salt = self.meta("salt")?.and_then(|salt| u32::try_from(salt).ok()).unwrap_or(0);
        let sql = "SELECT max(coalesce((SELECT max(seq) FROM message), 0),
                              coalesce((SELECT max(seq) FROM quota), 0),
                              coalesce((SELECT max(ord) FROM attempt), 0), ?1)";
        let known = self.mark("seq_last")?.max(self.quota_seq()?).max(self.head.reached.seq_last);
        let known = as_i64(known);
        let seq_last =
            self.connection.query_row(sql, [known], |row| row.get(0)).map_err(|e| self.error(e))?;
        // The last life may have used any of its tokens.
        let life = self.mark("life")?.max(self.progress().life);
        let token_last = ((life + 1) << TOKEN_BITS) - 1;
        Ok(Manifest { salt, seq_last, token_last, stock: self.stock(keys_since)? })
    }

    /// What there is, counted row by row.
    pub(in crate::embedded) fn stock(&self, keys_since: Timestamp) -> Result<Stock, StoreError> {
        let mut inventory = Inventory::default();
        for (kind, sql) in [
            (Kind::Queues, "SELECT count(*) FROM queue WHERE live = 1 AND ?1 = ?1"),
            (Kind::Quotas, "SELECT count(*) FROM quota WHERE ?1 = ?1"),
            (Kind::SlotConfigs, "SELECT count(*) FROM slot_config WHERE ?1 = ?1"),
            (Kind::Slots, "SELECT count(*) FROM slot WHERE ?1 = ?1"),
            (
                Kind::Pending,
                "SELECT count(*) FROM message WHERE ?1 = ?1
                 AND NOT EXISTS (SELECT 1 FROM outcome WHERE outcome.seq = message.seq)",
            ),
            (Kind::Dead, "SELECT count(*) FROM outcome WHERE status = 2 AND ?1 = ?1"),
            (Kind::Settled, "SELECT count(*) FROM outcome WHERE status <> 2 AND ?1 = ?1"),
            (Kind::Attempts, "SELECT count(*) FROM attempt WHERE ?1 = ?1"),
            (Kind::Keys, "SELECT count(*) FROM key WHERE at > ?1"),
        ] {
            let count = self.connection.query_row(sql, [keys_since.millis()], |row| row.get(0));
            inventory.add(kind, count.map_err(|e| self.error(e).among(&format!("counting {kind:?}")))?);
        }
        let Totals { admitted, delivered, dead, expired, deleted } = self.head.totals;
        Ok(Stock { inventory, books: Books { admitted, delivered, dead, expired, deleted } })
    }

    /// Queues and quotas, as a start would find them: charges that stand in the messages' rows alone are counted.
    pub(in crate::embedded) fn dump_accounts(&self, book: &mut Book) -> Result<Vec<Entry>, StoreError> {
        self.check_rows()?;
        self.recover_queues(book)?;
        let contained = self.recover_quotas(book)?;
        let sql = format!("SELECT {HEAD} FROM message WHERE seq > ?1 AND user IS NOT NULL ORDER BY seq");
        let sound = self.each(&sql, [self.quota_seq()?], |row| {
            let (message, sum) = read::head(row)?;
            let sound = checksum::head_matches(&message, sum);
            if let Some(charge) = message.charge
                && contained.get(&charge.user).is_some_and(|contained| message.seq > *contained)
            {
                book.quotas.restore_charge(charge, message.at);
            }
            Ok(sound)
        })?;
        self.require(sound, "a message does not match its checksum")?;
        let quota = |(user, account): (&_, &super::super::quotas::Account)| {
            let (quota, deferrals) = (account.quota, account.deferrals.clone());
            Entry::Quota(QuotaEntry { user: Clone::clone(user), quota, deferrals })
        };
        let mut accounts: Vec<_> = book.quotas.all().collect();
        accounts.sort_unstable_by_key(|(user, _)| *user);
        Ok(accounts.into_iter().map(quota).collect())
    }

    /// Every version of every configuration, in order, with the number of its configuration.
    pub(in crate::embedded) fn dump_slot_configs(&self) -> Result<Vec<(u16, SlotConfig)>, StoreError> {
        let mut configs = Vec::new();
        let sound = self.each_slot_config(|config, stored| {
            stored.map(|stored| configs.push((config, stored))).is_some()
        })?;
        self.require(sound, "a slot configuration makes no sense")?;
        Ok(configs)
    }

    pub(in crate::embedded) fn dump_slots(&self, after: u64) -> Result<Page<SlotRow>, StoreError> {
        let sql = format!("SELECT {SLOT} FROM slot WHERE seq > ?1 ORDER BY seq LIMIT ?2");
        let mut page = Vec::new();
        let sound = self.each(&sql, [after, PAGE_ROWS as u64], |row| {
            let stored = slot_of(row)?;
            Ok(stored.map(|stored| page.push((stored.held.seq, stored))).is_some())
        })?;
        self.require(sound, "a slot does not match its checksum")?;
        Ok(page)
    }

    pub(in crate::embedded) fn dump_keys(
        &self,
        after: u64,
        since: Timestamp,
    ) -> Result<Page<KeyEntry>, StoreError> {
        let sql =
            "SELECT seq, at, key, fingerprint, checksum FROM key WHERE seq > ?1 AND at > ?2 ORDER BY seq
                   LIMIT ?3";
        let mut page = Vec::new();
        self.each(sql, [as_i64(after), since.millis(), PAGE_ROWS as i64], |row| {
            let (seq, admitted_at, Idempotency { key, fingerprint }) = recover::key_of(row)?;
            page.push((seq, KeyEntry { key, fingerprint, seq, admitted_at }));
            Ok(true)
        })?;
        Ok(page)
    }

    pub(in crate::embedded) fn dump_messages(
        &self,
        after: u64,
        salt: u32,
        name_of: impl Fn(u32) -> Option<QueueName>,
    ) -> Result<Page<MessageEntry>, StoreError> {
        let messages = self.message_page(after)?;
        let (Some(first), Some(last)) = (messages.first(), messages.last()) else { return Ok(Vec::new()) };
        let (first, last) = (first.row.seq, last.row.seq);
        let mut attempts = self.page_of("attempt", ATTEMPT, (first, last), read::attempt)?;
        let mut outcomes = self.page_of("outcome", OUTCOME, (first, last), read::ended)?;
        let mut page = Vec::with_capacity(messages.len());
        for stored in messages {
            let seq = stored.row.seq;
            let name = name_of(stored.row.queue);
            let mut tried = Vec::new();
            while let Some(attempt) = attempts.pop_front_if(|attempt| attempt.seq <= seq) {
                tried.extend(Some(attempt).filter(|attempt| attempt.seq == seq));
            }
            let mut ended = None;
            while let Some(outcome) = outcomes.pop_front_if(|outcome| outcome.seq <= seq) {
                ended = Some(outcome).filter(|outcome| outcome.seq == seq);
            }
            let erased = ended.as_ref().is_some_and(|outcome| outcome.status == Status::Deleted);
            if !(stored.head_sound && (stored.body_sound || erased)) || name.is_none() {
                let id = MessageId::new(stored.row.at, seq, salt);
                let said = format!("message {id} does not match its checksum");
                return Err(StoreError::damaged(&self.path, said));
            }
            page.extend(name.map(|queue| (seq, entry(stored.row, queue, tried, ended))));
        }
        Ok(page)
    }

    fn message_page(&self, after: u64) -> Result<Vec<StoredMessage>, StoreError> {
        let sql = format!("SELECT {HEAD}, body FROM message WHERE seq > ?1 ORDER BY seq LIMIT ?2");
        let (mut messages, mut bytes, mut last) = (Vec::new(), 0, as_i64(after));
        let read = self.each(&sql, [after, PAGE_ROWS as u64], |row| {
            let stored = read::whole(row)?;
            bytes += stored.row.body.len();
            last = as_i64(stored.row.seq);
            messages.push(stored);
            Ok(bytes < PAGE_BYTES)
        });
        read.map_err(|error| self.naming(error, last + 1))?;
        Ok(messages)
    }

    /// Says which messages it was that could not be read, from that number on.
    fn naming(&self, error: StoreError, from: i64) -> StoreError {
        let to = as_i64(self.head.reached.seq_last);
        match gaps::behind_at(&self.connection, from, to) {
            Ok(behind) if error.kind == StoreErrorKind::Damaged => {
                error.among(&format!("messages {from} to {}", behind - 1))
            }
            _ => error,
        }
    }

    fn page_of<T>(
        &self,
        table: &str,
        columns: &str,
        (first, last): (u64, u64),
        read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<VecDeque<T>, StoreError> {
        let sql = format!("SELECT {columns} FROM {table} WHERE seq BETWEEN ?1 AND ?2 ORDER BY 1, 2");
        let mut found = VecDeque::new();
        self.each(&sql, [first, last], |row| {
            found.push_back(read(row)?);
            Ok(true)
        })
        .map_err(|error| error.among(&format!("{table} of messages {first} to {last}")))?;
        Ok(found)
    }
}

fn entry(
    message: MessageRow,
    queue: QueueName,
    attempts: Vec<AttemptRow>,
    outcome: Option<OutcomeRow>,
) -> MessageEntry {
    let due_at = attempts.last().map_or(message.due, |attempt| attempt.due);
    let erased = outcome.as_ref().is_some_and(|outcome| outcome.status == Status::Deleted);
    let fate = match outcome {
        Some(OutcomeRow { status, at, attempt, latency_ms, reason, .. }) => {
            let attempt = (attempt > 0).then_some((attempt, latency_ms));
            Fate::Ended(Ended { status, at, attempt, reason })
        }
        None => pending(message.seq, &attempts),
    };
    MessageEntry {
        seq: message.seq,
        admitted_at: message.at,
        queue,
        recipient: message.recipient,
        lane: message.lane,
        user: message.charge.map(|charge| charge.user),
        due_at,
        expires_at: message.expires,
        headers: message.headers,
        ack_required: message.ack_required,
        body: if erased { Bytes::new() } else { message.body },
        attempts: attempts.into_iter().map(AttemptRecord::from).collect(),
        fate,
    }
}

fn pending(seq: u64, attempts: &[AttemptRow]) -> Fate {
    let mut tries = Tries::default();
    for attempt in attempts {
        tries.last = attempt.number.saturating_sub(1);
        tries = tries.after(attempt.result);
    }
    let place = attempts.iter().map(|attempt| attempt.order).max().filter(|order| *order > 0);
    Fate::Pending {
        place: place.unwrap_or(seq),
        spent: tries.last,
        failures: tries.failures.into(),
        acks: tries.acks.into(),
    }
}

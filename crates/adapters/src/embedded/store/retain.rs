use std::collections::BTreeSet;

use rusqlite::{OptionalExtension, params};
use tidegate_domain::Timestamp;

use super::gaps::{self, is_damage};
use super::parties::{Passing, block_end};
use super::{Store, StoreError, StoreErrorKind, blocks, queues};

/// Sequence numbers looked at per slice: bounds how long retention holds up the next group.
const SLICE: i64 = 2_000;
/// And bytes of their bodies: what is removed is overwritten.
const SLICE_BYTES: i64 = 4 << 20;
/// Of a slice that meets a damaged page, so many numbers are looked at one by one, each in a commit of its own.
const SINGLY: i64 = 64;
/// How long to rest when everything has been looked at once.
const REST_MS: u64 = 60_000;

/// Walks the settled messages in order and removes those whose time is over, a slice at a time. Dead letters
/// stay until somebody removes them.
#[derive(Debug, Default)]
pub(in crate::embedded) struct Retention {
    next_seq: i64,
    rest_until: Timestamp,
    parties: Passing,
    /// Messages that can't be removed because a page is damaged. They are told of once, and left alone until the next start.
    damaged: BTreeSet<i64>,
    /// The last numbers of pages that can't be read.
    unreadable: BTreeSet<i64>,
}

/// Where retention stands.
enum Slice {
    /// Numbers among which something is old enough.
    Old(i64, i64),
    /// Messages up to that one can't be read.
    Unreadable(i64),
    None,
}

/// What may go.
#[derive(Debug, Clone, Copy)]
pub(in crate::embedded) struct Removable {
    pub(in crate::embedded) messages_before: Timestamp,
    pub(in crate::embedded) keys_before: Timestamp,
    /// The charges of later messages are not in the quotas' own rows yet.
    pub(in crate::embedded) seq_max: u64,
}

impl Retention {
    pub(in crate::embedded) fn is_resting(&self, now: Timestamp) -> bool {
        now < self.rest_until
    }
}

impl Store {
    /// Removes one slice in a commit of its own, or rests when there is none. What can't be removed because its page is
    /// damaged stays.
    pub(in crate::embedded) fn retain(
        &mut self,
        retention: &mut Retention,
        removable: Removable,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let slice = self.next_slice(retention, removable).map_err(|e| self.error(e))?;
        let slice = match slice {
            Slice::Old(from, to) => Some((from, to)),
            Slice::None => None,
            Slice::Unreadable(to) => {
                let from = retention.next_seq;
                if retention.unreadable.insert(to) {
                    tracing::error!(
                        from,
                        to,
                        "messages of these numbers can't be read: a page is damaged; they stay"
                    );
                }
                retention.next_seq = to.saturating_add(1);
                return Ok(());
            }
        };
        let old_keys = self.old_keys(removable.keys_before).map_err(|e| self.error(e))?;
        let old_parties = self.old_parties().map_err(|e| self.error(e))?;
        if slice.is_none() && old_keys.is_none() && old_parties.is_none() {
            retention.next_seq = 0;
            retention.parties = Passing::default();
            retention.rest_until = now.plus_ms(REST_MS);
            return Ok(());
        }
        let next_seq = retention.next_seq;
        let passing = &mut retention.parties;
        let result = self.transact(self.commit_at(now), |store| {
            let mut remove = || {
                let removed = store.remove(slice, removable)?;
                store.remove_keys(old_keys, removable)?;
                if let Some((from, to)) = slice {
                    store.forget_blocks(next_seq, to)?;
                    *passing = store.pass_parties(*passing, (from, to), removed)?;
                }
                old_parties.map_or(Ok(()), |until| store.forget_parties(until))
            };
            remove().map_err(|e| store.error(e))
        });
        let Some((from, to)) = slice else { return result };
        let is_damaged = result.as_ref().is_err_and(|error| error.kind == StoreErrorKind::Damaged);
        if !is_damaged {
            retention.next_seq = to.saturating_add(1);
            return result;
        }
        let to = to.min(from.saturating_add(SINGLY - 1));
        self.retain_singly(retention, (from, to), removable, now)?;
        retention.next_seq = to.saturating_add(1);
        Ok(())
    }

    /// Removes messages one by one, so that a damaged page costs only what it holds. What goes with whole blocks of them
    /// stays until a slice without damage passes, or for good.
    fn retain_singly(
        &mut self,
        retention: &mut Retention,
        (from, to): (i64, i64),
        removable: Removable,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let next_seq = retention.next_seq;
        for seq in self.seqs_of(from, to).map_err(|e| self.error(e))? {
            let remove = |store: &Self| store.remove_one(seq, removable);
            if self.meets_damage_in_commit(now, remove)? && retention.damaged.insert(seq) {
                tracing::error!(seq, "a message can't be removed: a page of the ledger is damaged; it stays");
            }
        }
        self.meets_damage_in_commit(now, |store| store.forget_blocks(next_seq, to))?;
        // Damage that every commit meets is no message's.
        self.transact(self.commit_at(now), |_| Ok(()))
    }

    fn meets_damage_in_commit(
        &mut self,
        now: Timestamp,
        write: impl FnOnce(&Self) -> rusqlite::Result<()>,
    ) -> Result<bool, StoreError> {
        match self.transact(self.commit_at(now), |store| write(store).map_err(|e| store.error(e))) {
            Err(error) if error.kind == StoreErrorKind::Damaged => Ok(true),
            written => written.map(|()| false),
        }
    }

    /// As far as they can be read.
    fn seqs_of(&self, from: i64, to: i64) -> rusqlite::Result<Vec<i64>> {
        let sql = "SELECT seq FROM message WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq";
        let mut select = self.connection.prepare_cached(sql)?;
        let (mut rows, mut seqs) = (select.query([from, to])?, Vec::new());
        loop {
            match rows.next() {
                Ok(Some(row)) => seqs.push(row.get(0)?),
                Ok(None) => return Ok(seqs),
                Err(error) if is_damage(&error) => return Ok(seqs),
                Err(error) => return Err(error),
            }
        }
    }

    /// Looks at no other row than its own: the next one may be on a damaged page.
    fn remove_one(&self, seq: i64, removable: Removable) -> rusqlite::Result<()> {
        let settled = "SELECT 1 FROM outcome WHERE seq = ?1 AND status <> 2 AND at < ?2";
        for table in ["message", "attempt", "outcome"] {
            let sql = format!("DELETE FROM {table} WHERE seq = ?1 AND EXISTS ({settled})");
            let before = removable.messages_before.millis();
            self.connection.prepare_cached(&sql)?.execute(params![seq, before])?;
        }
        Ok(())
    }

    /// The next range that holds anything old enough.
    fn next_slice(&self, retention: &mut Retention, removable: Removable) -> rusqlite::Result<Slice> {
        let seq_max = super::as_i64(removable.seq_max);
        let from = loop {
            let from = retention.next_seq;
            if from > seq_max {
                return Ok(Slice::None);
            }
            let first: rusqlite::Result<Option<(i64, i64)>> = self
                .connection
                .prepare_cached("SELECT seq, at FROM message WHERE seq >= ?1 ORDER BY seq LIMIT 1")?
                .query_row([from], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional();
            let first = match first {
                Err(error) if is_damage(&error) => {
                    return Ok(Slice::Unreadable(gaps::behind(&self.connection, from, seq_max)? - 1));
                }
                first => first?,
            };
            let due = first.filter(|(seq, at)| *seq <= seq_max && *at < removable.messages_before.millis());
            let Some((seq, _)) = due else { return Ok(Slice::None) };
            if !retention.damaged.contains(&seq) {
                break seq;
            }
            // What is known to be damaged is stepped over.
            retention.next_seq = seq.saturating_add(1);
        };
        let mut to = from.saturating_add(SLICE).min(seq_max).min(block_end(from));
        if let Some(damaged) = retention.damaged.range(from..=to).next() {
            to = damaged - 1;
        }
        // The length of a body is known without a look at its pages.
        let mut select = self.connection.prepare_cached(
            "SELECT seq, length(body) FROM message WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq",
        )?;
        let (mut rows, mut bytes, mut last) = (select.query([from, to])?, 0, from);
        loop {
            match rows.next() {
                Ok(Some(row)) => {
                    last = row.get(0)?;
                    bytes += row.get::<_, i64>(1)?;
                }
                Ok(None) => break,
                Err(error) if is_damage(&error) => {
                    to = last;
                    break;
                }
                Err(error) => return Err(error),
            }
            if bytes >= SLICE_BYTES {
                to = last;
                break;
            }
        }
        Ok(Slice::Old(from, to))
    }

    /// Before the slice there is nothing: `from` is where the last one ended.
    fn forget_blocks(&self, from: i64, to: i64) -> rusqlite::Result<()> {
        for queue in blocks::remove_empty(&self.connection, from, to)? {
            queues::remove_unused(&self.connection, queue)?;
        }
        Ok(())
    }

    fn old_keys(&self, before: Timestamp) -> rusqlite::Result<Option<i64>> {
        self.connection
            .prepare_cached("SELECT seq FROM (SELECT seq, at FROM key ORDER BY seq LIMIT 1) WHERE at < ?1")?
            .query_row([before.millis()], |row| row.get(0))
            .optional()
    }

    /// Says how many messages are removed, as many as their outcomes.
    fn remove(&self, slice: Option<(i64, i64)>, removable: Removable) -> rusqlite::Result<u64> {
        let Some((from, to)) = slice else { return Ok(0) };
        let mut removed = 0;
        let settled = "SELECT seq FROM outcome WHERE seq BETWEEN ?1 AND ?2 AND status <> 2 AND at < ?3";
        for table in ["message", "attempt", "outcome"] {
            let sql = format!("DELETE FROM {table} WHERE seq BETWEEN ?1 AND ?2 AND seq IN ({settled})");
            let before = removable.messages_before.millis();
            removed = self.connection.prepare_cached(&sql)?.execute(params![from, to, before])?;
        }
        Ok(removed as u64)
    }

    fn remove_keys(&self, old_keys: Option<i64>, removable: Removable) -> rusqlite::Result<()> {
        if let Some(from) = old_keys {
            let before = removable.keys_before.millis();
            self.connection
                .prepare_cached("DELETE FROM key WHERE seq BETWEEN ?1 AND ?1 + ?2 AND at < ?3")?
                .execute(params![from, SLICE, before])?;
        }
        Ok(())
    }
}

use rusqlite::{OptionalExtension, params};
use tidegate_domain::Timestamp;

use super::parties::{Passing, block_end};
use super::{Store, StoreError, blocks, queues};

/// Sequence numbers looked at per slice: bounds how long retention holds up the next group.
const SLICE: i64 = 2_000;
/// And bytes of their bodies: what is removed is overwritten.
const SLICE_BYTES: i64 = 4 << 20;
/// How long to rest when everything has been looked at once.
const REST_MS: u64 = 60_000;

/// Walks the settled messages in order and removes those whose time is over, a slice at a time. Dead letters
/// stay until somebody removes them.
#[derive(Debug, Default)]
pub(in crate::embedded) struct Retention {
    next_seq: i64,
    rest_until: Timestamp,
    parties: Passing,
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
    /// Removes one slice in a commit of its own, or rests when there is none.
    pub(in crate::embedded) fn retain(
        &mut self,
        retention: &mut Retention,
        removable: Removable,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let slice = self.next_slice(retention.next_seq, removable).map_err(|e| self.error(e))?;
        let old_keys = self.old_keys(removable.keys_before).map_err(|e| self.error(e))?;
        let old_parties = self.old_parties().map_err(|e| self.error(e))?;
        if slice.is_none() && old_keys.is_none() && old_parties.is_none() {
            *retention = Retention { rest_until: now.plus_ms(REST_MS), ..Retention::default() };
            return Ok(());
        }
        let next_seq = retention.next_seq;
        let passing = &mut retention.parties;
        let result = self.transact(self.commit_at(now), |store| {
            let mut remove = || {
                let removed = store.remove(slice, old_keys, removable)?;
                if let Some((from, to)) = slice {
                    store.forget_blocks(next_seq, to)?;
                    *passing = store.pass_parties(*passing, (from, to), removed)?;
                }
                old_parties.map_or(Ok(()), |until| store.forget_parties(until))
            };
            remove().map_err(|e| store.error(e))
        });
        if let Some((_, to)) = slice {
            retention.next_seq = to.saturating_add(1);
        }
        result
    }

    /// The next range that holds anything old enough.
    fn next_slice(&self, from: i64, removable: Removable) -> rusqlite::Result<Option<(i64, i64)>> {
        let first: Option<(i64, i64)> = self
            .connection
            .prepare_cached("SELECT seq, at FROM message WHERE seq >= ?1 ORDER BY seq LIMIT 1")?
            .query_row([from], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let seq_max = super::as_i64(removable.seq_max);
        let due = first.filter(|(seq, at)| *seq <= seq_max && *at < removable.messages_before.millis());
        let Some((from, _)) = due else { return Ok(None) };
        let mut to = from.saturating_add(SLICE).min(seq_max).min(block_end(from));
        // The length of a body is known without a look at its pages.
        let mut select = self.connection.prepare_cached(
            "SELECT seq, length(body) FROM message WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq",
        )?;
        let (mut rows, mut bytes) = (select.query([from, to])?, 0);
        while let Some(row) = rows.next()? {
            bytes += row.get::<_, i64>(1)?;
            if bytes >= SLICE_BYTES {
                to = row.get(0)?;
                break;
            }
        }
        Ok(Some((from, to)))
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
    fn remove(
        &self,
        slice: Option<(i64, i64)>,
        old_keys: Option<i64>,
        removable: Removable,
    ) -> rusqlite::Result<u64> {
        let mut removed = 0;
        if let Some((from, to)) = slice {
            let settled = "SELECT seq FROM outcome WHERE seq BETWEEN ?1 AND ?2 AND status <> 2 AND at < ?3";
            for table in ["message", "attempt", "outcome"] {
                let sql = format!("DELETE FROM {table} WHERE seq BETWEEN ?1 AND ?2 AND seq IN ({settled})");
                let before = removable.messages_before.millis();
                removed = self.connection.prepare_cached(&sql)?.execute(params![from, to, before])?;
            }
        }
        if let Some(from) = old_keys {
            let before = removable.keys_before.millis();
            self.connection
                .prepare_cached("DELETE FROM key WHERE seq BETWEEN ?1 AND ?1 + ?2 AND at < ?3")?
                .execute(params![from, SLICE, before])?;
        }
        Ok(removed as u64)
    }
}

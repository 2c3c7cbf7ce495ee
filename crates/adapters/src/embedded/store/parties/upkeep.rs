//! Runs and the open block at the start, and when retention has been there.

use rusqlite::{Connection, OptionalExtension};
use tidegate_domain::Timestamp;

use super::super::gaps::{self, is_damage};
use super::super::read::{self, HEAD};
use super::super::{Store, StoreError, as_i64, checksum};
use super::find::next_block;
use super::{BLOCK, Gathered, Open, run};

/// A run is made anew when retention has left no more than this part of its block.
const FEW: u64 = BLOCK / 8;

/// The block that retention is walking over. What it did there in an earlier life is not known: the run of that block may
/// stay larger than it need be until the next message goes.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::embedded::store) struct Passing {
    block: u64,
    removed: u64,
    kept: u64,
}

impl Store {
    /// Reads the open block, and makes the runs that are missing.
    pub(in crate::embedded) fn load_parties(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let sql = "SELECT max(seq) FROM message";
        let seq_max: Option<u64> =
            self.connection.query_row(sql, [], |row| row.get(0)).map_err(|e| self.error(e))?;
        let Some(last) = seq_max.map(|seq| seq / BLOCK) else { return Ok(()) };
        let mut block = 0;
        while let Some(missing) = next_missing(&self.connection, block, last).map_err(|e| self.error(e))? {
            tracing::warn!(
                block = missing,
                "a summary of recipients is missing or damaged, and is made anew"
            );
            self.transact(self.commit_at(now), |store| {
                let db = &store.connection;
                gather(db, missing).and_then(|gathered| run::write(db, &gathered)).map_err(|e| store.error(e))
            })?;
            block = missing + 1;
        }
        let gathered = gather(&self.connection, last).map_err(|e| self.error(e))?;
        let mut open = Open { block: last, ..Open::default() };
        open.add(gathered);
        *self.parties.lock() = open;
        Ok(())
    }

    /// What goes with a slice of messages, which lies within one block and of which so many have been removed.
    pub(in crate::embedded::store) fn pass_parties(
        &self,
        passing: Passing,
        (from, to): (i64, i64),
        removed: u64,
    ) -> rusqlite::Result<Passing> {
        let db = &self.connection;
        let block = u64::try_from(from).unwrap_or(0) / BLOCK;
        let before = if passing.block == block { passing } else { Passing { block, ..Passing::default() } };
        let kept: u64 = db
            .prepare_cached("SELECT count(*) FROM message WHERE seq BETWEEN ?1 AND ?2")?
            .query_row([from, to], |row| row.get(0))?;
        let passed = Passing { block, removed: before.removed + removed, kept: before.kept + kept };
        let is_over = to >= block_end(from);
        if is_over && passed.removed > 0 && passed.kept <= FEW && block < self.parties.block() {
            run::write(db, &gather(db, block)?)?;
        }
        Ok(passed)
    }

    /// The first blocks whose messages are all gone, if they still have runs.
    pub(in crate::embedded::store) fn old_parties(&self) -> rusqlite::Result<Option<u64>> {
        let db = &self.connection;
        let first: Option<u64> = db
            .prepare_cached("SELECT id FROM party_block ORDER BY id LIMIT 1")?
            .query_row([], |row| row.get(0))
            .optional()?;
        let Some(first) = first.map(|id| id >> 16) else { return Ok(None) };
        let until = match next_block(db, 0) {
            // The first messages can't be read, and stay.
            Err(error) if is_damage(&error) => return Ok(None),
            next => next?.unwrap_or(first + 1),
        };
        Ok((first < until).then_some(until))
    }

    pub(in crate::embedded::store) fn forget_parties(&self, until: u64) -> rusqlite::Result<()> {
        run::remove(&self.connection, 0, until)
    }
}

/// The last number of the block of this one.
pub(in crate::embedded::store) fn block_end(seq: i64) -> i64 {
    let block = as_i64(BLOCK);
    (seq / block).saturating_mul(block).saturating_add(block - 1)
}

/// The first block from there on, and before the last, that has messages and no run.
fn next_missing(db: &Connection, mut block: u64, last: u64) -> rusqlite::Result<Option<u64>> {
    while block < last {
        match run::head(db, block)? {
            Some(Ok(_)) => block += 1,
            Some(Err(_)) => return Ok(Some(block)),
            None => match next_block(db, block)?.filter(|next| *next < last) {
                Some(next) if next == block => return Ok(Some(block)),
                Some(next) => block = next,
                None => return Ok(None),
            },
        }
    }
    Ok(None)
}

/// Reads the messages of a block. Of numbers whose page can't be read there may be some, so that each counts as damaged.
pub(super) fn gather(db: &Connection, block: u64) -> rusqlite::Result<Gathered> {
    let mut gathered = Gathered { block, ..Gathered::default() };
    let (mut from, to) = (as_i64(block * BLOCK), as_i64(block * BLOCK + BLOCK - 1));
    while from <= to {
        let mut met = from;
        match gather_from(db, (from, to), &mut met, &mut gathered) {
            Err(error) if is_damage(&error) => {
                let behind = gaps::behind_at(db, met, to)?;
                for seq in met..behind {
                    gathered.add_damaged(u64::try_from(seq).unwrap_or_default());
                }
                from = behind;
            }
            done => return done.map(|()| gathered),
        }
    }
    Ok(gathered)
}

/// Leaves in `next` the number behind the last message that was read.
fn gather_from(
    db: &Connection,
    (from, to): (i64, i64),
    next: &mut i64,
    gathered: &mut Gathered,
) -> rusqlite::Result<()> {
    let mut select =
        db.prepare_cached(&format!("SELECT {HEAD} FROM message WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq"))?;
    let mut rows = select.query([from, to])?;
    while let Some(row) = rows.next()? {
        match read::head(row) {
            Ok((message, sum)) if checksum::head_matches(&message, sum) => gathered.add_message(&message),
            Err(error @ rusqlite::Error::SqliteFailure(..)) => return Err(error),
            Ok(_) | Err(_) => gathered.add_damaged(row.get(0)?),
        }
        *next = row.get::<_, i64>(0)? + 1;
    }
    Ok(())
}

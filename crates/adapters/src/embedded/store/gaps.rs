//! Pages that can't be read. SQLite says so (`SQLITE_CORRUPT`) when it comes across one, and such an error is about the row
//! that was looked for: no write and no fsync has failed.

use rusqlite::{Connection, Error, ErrorCode, OptionalExtension as _};

use super::super::book::Touched;
use super::{Store, StoreError, dead, erase};

/// Whether a page was not what SQLite had written.
pub(super) fn is_damage(error: &Error) -> bool {
    matches!(error, Error::SqliteFailure(code, _) if code.code == ErrorCode::DatabaseCorrupt)
}

/// The first number above `from` at which a look at the messages can begin again, when one at `from` meets a damaged page;
/// `to + 1` when there is none up to `to`.
pub(super) fn behind(db: &Connection, from: i64, to: i64) -> rusqlite::Result<i64> {
    let (mut unreadable, mut step) = (from, 1);
    let mut readable = loop {
        let next = from.saturating_add(step);
        if next > to {
            break to.saturating_add(1);
        }
        if is_readable(db, next)? {
            break next;
        }
        unreadable = next;
        step *= 2;
    };
    while unreadable + 1 < readable {
        let middle = unreadable + (readable - unreadable) / 2;
        if middle <= to && is_readable(db, middle)? {
            readable = middle;
        } else {
            unreadable = middle;
        }
    }
    Ok(readable)
}

/// Where to go on when a row from `from` on can't be read: behind the row, or behind all that its page held.
pub(super) fn behind_at(db: &Connection, from: i64, to: i64) -> rusqlite::Result<i64> {
    match first(db, from) {
        Ok(Some(seq)) => Ok(seq.saturating_add(1)),
        Ok(None) => Ok(to.saturating_add(1)),
        Err(error) if is_damage(&error) => behind(db, from, to),
        Err(error) => Err(error),
    }
}

/// The first message from that number on.
pub(super) fn first(db: &Connection, from: i64) -> rusqlite::Result<Option<i64>> {
    db.prepare_cached("SELECT seq FROM message WHERE seq >= ?1 ORDER BY seq LIMIT 1")?
        .query_row([from], |row| row.get(0))
        .optional()
}

fn is_readable(db: &Connection, seq: i64) -> rusqlite::Result<bool> {
    match first(db, seq) {
        Ok(_) => Ok(true),
        Err(error) if is_damage(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

impl Store {
    /// Which of the messages whose texts a group changes can't be changed, because their pages or those beside them are
    /// damaged. Tries each and takes it back, all of the transaction: after such an error SQLite writes nothing more in it.
    pub(in crate::embedded) fn unchangeable(&self, touched: &Touched) -> Result<Vec<u64>, StoreError> {
        let db = &self.connection;
        let mut found = Vec::new();
        for seq in &touched.overwritten {
            found.extend(self.meets_damage(|| erase::write(db, &[*seq]))?.then_some(*seq));
        }
        for seq in &touched.removed {
            found.extend(self.meets_damage(|| dead::remove(db, *seq))?.then_some(*seq));
        }
        Ok(found)
    }

    fn meets_damage(&self, change: impl FnOnce() -> rusqlite::Result<()>) -> Result<bool, StoreError> {
        self.begin()?;
        let tried = change();
        self.roll_back();
        match tried {
            Ok(()) => Ok(false),
            Err(error) if is_damage(&error) => Ok(true),
            Err(error) => Err(self.error(error)),
        }
    }
}

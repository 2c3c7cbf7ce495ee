//! Moving committed pages from the WAL into the database.

use std::sync::atomic::Ordering;

use tidegate_domain::{Durability, Timestamp};

use super::progress::Progress;
use super::{Store, StoreError, StoreErrorKind};

/// The worst commit follows the checkpoint: 2,000 pages keep it near 15 ms.
const CHECKPOINT_PAGES: i32 = 2_000;
/// How long the file of progress may go unsynced.
const PROGRESS_SYNC_MS: u64 = 1_000;

/// What a checkpoint did. Without a WAL, both numbers are negative.
struct Moved {
    /// Another connection kept it from all that was asked for.
    busy: bool,
    pages: i64,
    moved: i64,
}

impl Store {
    /// A checkpoint once there are enough pages.
    pub(in crate::embedded) fn checkpoint_if_due(&mut self, now: Timestamp) -> Result<(), StoreError> {
        if self.wal_pages.load(Ordering::Relaxed) < CHECKPOINT_PAGES {
            return Ok(());
        }
        self.checkpoint("PASSIVE", now)
    }

    /// All pages, and an empty WAL, unless another process has the file open. The WAL is cut when the progress knows of the
    /// checkpoint: until then it proves that the database is complete.
    pub(super) fn checkpoint_last(&mut self, now: Timestamp) -> Result<bool, StoreError> {
        self.checkpoint("FULL", now)?;
        let Moved { busy, pages, moved } = self.move_pages("TRUNCATE")?;
        Ok(!busy && pages == moved)
    }

    /// Each checkpoint has a number. It travels in the first page of the database and, once all pages are synced, stands
    /// in the file of progress: a database from before the checkpoint is found by it. Without it, SQLite would apply the
    /// WAL, which begins after the checkpoint, to whatever database is there.
    fn checkpoint(&mut self, mode: &str, now: Timestamp) -> Result<(), StoreError> {
        let numbered = self.sync == Durability::Fsync;
        // No number twice, also when the checkpoint that it was for has not come to its end.
        let used = if numbered { self.checkpoint_number()? } else { 0 };
        let number = self.progress.last().checkpoint.max(used).saturating_add(1);
        let numbered = numbered && self.number(number, now)?;
        self.wal_pages.store(0, Ordering::Relaxed);
        let Moved { pages, moved, .. } = self.move_pages(mode)?;
        if numbered && pages >= 0 && pages == moved {
            let database_bytes = std::fs::metadata(&self.path);
            let database_bytes =
                database_bytes.map_err(|error| StoreError::of_file(&self.path, error))?.len();
            let known = *self.progress.last();
            self.progress.note(Progress { checkpoint: number, database_bytes, ..known })?;
            // Before the next commit, which may begin the WAL anew.
            self.progress.sync()?;
        }
        Ok(())
    }

    fn move_pages(&self, mode: &str) -> Result<Moved, StoreError> {
        let read =
            |row: &rusqlite::Row<'_>| Ok(Moved { busy: row.get(0)?, pages: row.get(1)?, moved: row.get(2)? });
        self.connection
            .query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], read)
            .map_err(|e| self.error(e))
    }

    /// The number that the database has, by its file and the WAL.
    pub(super) fn checkpoint_number(&self) -> Result<u32, StoreError> {
        self.connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(|e| self.error(e))
    }

    /// Ends what a crash has interrupted: a checkpoint, or an import that took the place of an empty ledger. Later the WAL can't
    /// tell any more that all is well. The database with this number is synced.
    pub(super) fn adopt_checkpoint(&mut self, number: u32) -> Result<(), StoreError> {
        let known = *self.progress.last();
        if number > known.checkpoint || known.successor > 0 {
            let checkpoint = number.max(known.checkpoint);
            self.progress.note(Progress { checkpoint, successor: 0, ..known })?;
            self.progress.sync()?;
        }
        Ok(())
    }

    /// A full disk may have room for the checkpoint and none for its number. Then it goes without: the room that it
    /// makes matters more.
    fn number(&mut self, number: u32, now: Timestamp) -> Result<bool, StoreError> {
        let numbered = self.transact(self.commit_at(now), |store| {
            store.connection.pragma_update(None, "user_version", number).map_err(|e| store.error(e))
        });
        match numbered {
            Ok(()) => Ok(true),
            Err(error) if error.kind == StoreErrorKind::NoSpace => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Bounds how far a power cut can set the file of progress back.
    pub(in crate::embedded) fn sync_progress(&mut self, now: Timestamp) -> Result<(), StoreError> {
        if self.sync == Durability::Fsync && now.since_ms(self.progress_synced) >= PROGRESS_SYNC_MS {
            self.progress_synced = now;
            self.progress.sync()?;
        }
        Ok(())
    }
}

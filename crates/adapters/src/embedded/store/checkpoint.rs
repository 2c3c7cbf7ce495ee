//! Moving committed pages from the WAL into the database.

use std::sync::atomic::Ordering;

use tidegate_domain::{Durability, Timestamp};

use super::progress::Progress;
use super::{Store, StoreError, StoreErrorKind};

/// The worst commit follows the checkpoint: 2,000 pages keep it near 15 ms.
const CHECKPOINT_PAGES: i32 = 2_000;
/// How long the file of progress may go unsynced.
const PROGRESS_SYNC_MS: u64 = 1_000;

impl Store {
    /// A checkpoint once there are enough pages.
    pub(in crate::embedded) fn checkpoint_if_due(&mut self, now: Timestamp) -> Result<(), StoreError> {
        if self.wal_pages.load(Ordering::Relaxed) < CHECKPOINT_PAGES {
            return Ok(());
        }
        self.checkpoint("PRAGMA wal_checkpoint(PASSIVE)", now).map(drop)
    }

    /// All pages, and an empty WAL, unless another process has the file open.
    pub(super) fn checkpoint_last(&mut self, now: Timestamp) -> Result<bool, StoreError> {
        self.checkpoint("PRAGMA wal_checkpoint(TRUNCATE)", now)
    }

    /// Each checkpoint has a number. It travels in the first page of the database and, once all pages are synced, stands
    /// in the file of progress: a database from before the checkpoint is found by it. Without it, SQLite would apply the
    /// WAL, which begins after the checkpoint, to whatever database is there.
    ///
    /// True when all of the WAL was moved.
    fn checkpoint(&mut self, sql: &str, now: Timestamp) -> Result<bool, StoreError> {
        let numbered = self.sync == Durability::Fsync;
        let number = self.progress.last().checkpoint.saturating_add(1);
        let numbered = numbered && self.number(number, now)?;
        self.wal_pages.store(0, Ordering::Relaxed);
        let whole = self
            .connection
            .query_row(sql, [], |row| {
                let (busy, pages, moved): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok(busy == 0 && pages == moved)
            })
            .map_err(|e| self.error(e))?;
        if whole && numbered {
            let database_bytes = std::fs::metadata(&self.path);
            let database_bytes =
                database_bytes.map_err(|error| StoreError::of_file(&self.path, error))?.len();
            let known = *self.progress.last();
            self.progress.note(Progress { checkpoint: number, database_bytes, ..known })?;
            // Before the next commit, which may begin the WAL anew.
            self.progress.sync()?;
        }
        Ok(whole)
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

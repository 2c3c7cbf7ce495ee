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
        self.checkpoint("PASSIVE", now).map(drop)
    }

    /// All pages, and an empty WAL, unless a look-up or another process is reading. Whether it did so.
    ///
    /// The WAL is cut when the progress knows of the checkpoint: until then it proves that the database is complete. A
    /// look-up that keeps the first step from its end may be over before the second, so the second is not even tried then:
    /// it would end that checkpoint, and a crash would leave a database that is newer than the progress, without its proof.
    pub(super) fn checkpoint_last(&mut self, now: Timestamp) -> Result<bool, StoreError> {
        if !self.checkpoint("FULL", now)? {
            return Ok(false);
        }
        let Moved { busy, .. } = self.move_pages("TRUNCATE")?;
        Ok(!busy)
    }

    /// Each checkpoint has a number. It travels in the first page of the database and, once all pages are synced, stands
    /// in the file of progress: a database from before the checkpoint is found by it. Without it, SQLite would apply the
    /// WAL, which begins after the checkpoint, to whatever database is there.
    ///
    /// Whether all pages are in the database now.
    fn checkpoint(&mut self, mode: &str, now: Timestamp) -> Result<bool, StoreError> {
        let synced = self.sync == Durability::Fsync;
        let number = if synced { self.next_number(now)? } else { 0 };
        self.wal_pages.store(0, Ordering::Relaxed);
        let Moved { pages, moved, .. } = self.move_pages(mode)?;
        let whole = pages == moved;
        if synced && whole && pages >= 0 {
            let database_bytes = std::fs::metadata(&self.path);
            let database_bytes =
                database_bytes.map_err(|error| StoreError::of_file(&self.path, error))?.len();
            let known = *self.progress.last();
            let checkpoint = number.max(known.checkpoint);
            self.progress.note(Progress { checkpoint, database_bytes, ..known })?;
            // Before the next commit, which may begin the WAL anew.
            self.progress.sync()?;
        }
        Ok(whole)
    }

    /// The number of the checkpoint that is about to begin, committed. No number is given twice, also when the checkpoint that it
    /// was for has not come to its end. Without room for it the number before stands, which the database may get only now.
    fn next_number(&mut self, now: Timestamp) -> Result<u32, StoreError> {
        let used = self.checkpoint_number()?;
        let number = self.progress.last().checkpoint.max(used).saturating_add(1);
        Ok(if self.number(number, now)? { number } else { used })
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

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::path::Path;

    use rusqlite::Connection;

    use super::super::{FILE_NAME, beside, progress, wal};
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    thread_local! {
        static LOOK_UP: RefCell<Option<Connection>> = const { RefCell::new(None) };
        static MET: Cell<u32> = const { Cell::new(0) };
    }

    /// A look-up that the first step of a checkpoint does not wait for, and that is over when the next step comes.
    fn meet(_: i32) -> bool {
        MET.set(MET.get() + 1);
        let again = MET.get() > 1;
        if again {
            LOOK_UP.take();
        }
        again
    }

    /// The files as a crash leaves them.
    fn crash(database: &Path, to: &Path) -> std::path::PathBuf {
        let copy = to.join(FILE_NAME);
        for suffix in ["", wal::SUFFIX, progress::SUFFIX] {
            std::fs::copy(beside(database, suffix), beside(&copy, suffix)).unwrap();
        }
        copy
    }

    #[test]
    fn a_look_up_that_ends_within_a_checkpoint_leaves_no_database_that_is_newer_than_its_progress() {
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let database = dirs[0].path().join(FILE_NAME);
        let mut store = Store::open(&database, Durability::Fsync).unwrap();
        store.begin_life(NOW).unwrap();
        let look_up = Store::reader(&database).unwrap();
        look_up.execute_batch("BEGIN; SELECT * FROM meta").unwrap();
        LOOK_UP.set(Some(look_up));
        store.connection.busy_handler(Some(meet)).unwrap();
        assert!(!store.checkpoint_last(NOW).unwrap(), "a look-up was in its way");
        assert!(MET.get() > 0, "a look-up was in its way");
        LOOK_UP.take();
        store.begin_life(NOW).unwrap();
        let copy = crash(&database, dirs[1].path());
        Store::open(&copy, Durability::Fsync).expect("nothing is missing").close(NOW).unwrap();
        assert!(store.checkpoint_last(NOW).unwrap(), "nothing is in its way");
        let copy = crash(&database, dirs[1].path());
        assert_eq!(std::fs::metadata(beside(&copy, wal::SUFFIX)).unwrap().len(), 0);
        Store::open(&copy, Durability::Fsync).expect("nothing is missing");
    }
}

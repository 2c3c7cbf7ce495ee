//! The rows on disk: one SQLite file in WAL mode, written by one connection.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rusqlite::hooks::Wal;
use rusqlite::{Connection, OpenFlags, params};
use tidegate_domain::Durability;

use super::book::Group;

mod blocks;
pub(super) mod checksum;
mod dead;
mod dump;
mod error;
mod insert;
pub(super) mod list;
mod load;
pub(super) mod read;
mod recover;
mod retain;
mod schema;
mod slots;
mod wal;
mod write;

pub(super) use error::{StoreError, StoreErrorKind};
pub(super) use read::Stub;
pub(super) use retain::{Removable, Retention};

pub(super) const FILE_NAME: &str = "ledger.db";
/// The worst commit follows the checkpoint: 2,000 pages keep it near 15 ms.
const CHECKPOINT_PAGES: i32 = 2_000;
const READ_CACHE_KIB: i64 = 4_096;
const WRITE_CACHE_KIB: i64 = 16_384;
const PROBE_BYTES: i64 = 1 << 18;

/// Where the next start has to begin.
#[derive(Debug)]
pub(super) struct Marks {
    /// No older message is pending.
    pub(super) live_from: u64,
    /// The quotas' own rows contain the charges up to here.
    pub(super) quota_seq: u64,
    pub(super) seq_last: u64,
}

#[derive(Debug)]
pub(super) struct Store {
    connection: Connection,
    path: PathBuf,
    /// Pages in the WAL after the last commit.
    wal_pages: Arc<AtomicI32>,
}

impl Store {
    /// Opens the file, or makes it. Damage that can be seen is an error here.
    pub(super) fn open(dir: &Path, sync: Durability) -> Result<Self, StoreError> {
        let path = dir.join(FILE_NAME);
        wal::check(&path)?;
        let connection = Connection::open(&path).map_err(|e| StoreError::of(&path, e))?;
        let mut store = Self { connection, path, wal_pages: Arc::default() };
        store.prepare(sync).map_err(|e| store.error(e))?;
        schema::ensure(&store.connection).map_err(|e| e.in_file(&store.path))?;
        Ok(store)
    }

    fn prepare(&mut self, sync: Durability) -> rusqlite::Result<()> {
        let db = &mut self.connection;
        db.pragma_update(None, "journal_mode", "WAL")?;
        // FULL syncs the WAL at every commit; NORMAL would lose acknowledged messages in a power cut.
        let level = match sync {
            Durability::Fsync => "FULL",
            Durability::OsBuffer => "OFF",
        };
        db.pragma_update(None, "synchronous", level)?;
        db.pragma_update(None, "cache_size", -WRITE_CACHE_KIB)?;
        db.pragma_update(None, "temp_store", "MEMORY")?;
        db.pragma_update(None, "journal_size_limit", 64 << 20)?;
        db.set_prepared_statement_cache_capacity(64);
        // SQLite's own checkpointer swallows errors, and a swallowed failed fsync is a lost message: ours looks.
        let wal_pages = self.wal_pages.clone();
        db.wal_hook(Some(move |_: &mut Wal, pages| {
            wal_pages.store(pages, Ordering::Relaxed);
            Ok(())
        }))
    }

    /// A connection for look-ups beside the writer.
    pub(super) fn reader(dir: &Path) -> Result<Connection, StoreError> {
        let path = dir.join(FILE_NAME);
        let open = || {
            let db = Connection::open_with_flags(
                &path,
                OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
            )?;
            db.pragma_update(None, "query_only", true)?;
            db.pragma_update(None, "cache_size", -READ_CACHE_KIB)?;
            db.busy_timeout(std::time::Duration::from_secs(2))?;
            db.set_prepared_statement_cache_capacity(16);
            Ok(db)
        };
        open().map_err(|e| StoreError::of(&path, e))
    }

    /// Writes a group in one durable commit: all of it or nothing.
    pub(super) fn write(&mut self, group: &Group) -> Result<(), StoreError> {
        let result = self.begin().and_then(|()| self.write_rows(group)).and_then(|()| self.commit());
        if result.is_err() {
            self.roll_back();
        }
        result
    }

    pub(super) fn begin(&self) -> Result<(), StoreError> {
        self.connection
            .prepare_cached("BEGIN IMMEDIATE")
            .and_then(|mut s| s.execute([]))
            .map_err(|e| self.error(e))?;
        Ok(())
    }

    pub(super) fn commit(&self) -> Result<(), StoreError> {
        self.connection
            .prepare_cached("COMMIT")
            .and_then(|mut s| s.execute([]))
            .map_err(|e| self.error(e))?;
        Ok(())
    }

    fn roll_back(&self) {
        // After some errors SQLite has rolled back by itself, and this one says so.
        let _ = self.connection.execute_batch("ROLLBACK");
    }

    /// Remembers where the next start can begin, and how far sequence numbers have gone in case retention removes
    /// the newest row.
    pub(super) fn write_marks(&self, marks: &Marks) -> Result<(), StoreError> {
        self.begin()?;
        let write = || {
            set_meta(&self.connection, "live_from", as_i64(marks.live_from))?;
            set_meta(&self.connection, "quota_seq", as_i64(marks.quota_seq))?;
            set_meta(&self.connection, "seq_last", as_i64(marks.seq_last))
        };
        write().map_err(|e| self.error(e)).and_then(|()| self.commit()).inspect_err(|_| self.roll_back())
    }

    /// Moves committed pages from the WAL into the file once there are enough of them.
    pub(super) fn checkpoint_if_due(&self) -> Result<(), StoreError> {
        if self.wal_pages.load(Ordering::Relaxed) < CHECKPOINT_PAGES {
            return Ok(());
        }
        self.wal_pages.store(0, Ordering::Relaxed);
        self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).map_err(|e| self.error(e))
    }

    /// Whether the disk takes a write again.
    pub(super) fn probe(&self) -> Result<(), StoreError> {
        let write = || -> rusqlite::Result<()> {
            let db = &self.connection;
            db.execute_batch("BEGIN IMMEDIATE")?;
            db.execute(
                "INSERT OR REPLACE INTO meta (name, value) VALUES ('probe', zeroblob(?1))",
                [PROBE_BYTES],
            )?;
            db.execute("DELETE FROM meta WHERE name = 'probe'", [])?;
            db.execute_batch("COMMIT")
        };
        let result = write().map_err(|e| self.error(e));
        if result.is_err() {
            self.roll_back();
        }
        result
    }

    /// Leaves the files alone from now on: closing would checkpoint, and after a failed fsync nothing that this
    /// process believes about the disk may be written to it.
    pub(super) fn abandon(self) {
        std::mem::forget(self.connection);
    }

    pub(super) fn close(self) -> Result<(), StoreError> {
        let path = self.path;
        self.connection.close().map_err(|(_, e)| StoreError::of(&path, e))
    }

    #[cfg(test)]
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    fn error(&self, error: rusqlite::Error) -> StoreError {
        StoreError::of(&self.path, error)
    }
}

fn set_meta(db: &Connection, name: &str, value: i64) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)")?
        .execute(params![name, value])?;
    Ok(())
}

fn get_meta(db: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    use rusqlite::OptionalExtension;
    db.prepare_cached("SELECT value FROM meta WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()
}

/// SQLite's integers are signed; sequence numbers and durations stay far below the sign.
pub(super) fn as_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

//! The rows on disk: one SQLite file in WAL mode, written by one connection.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rusqlite::config::DbConfig;
use rusqlite::hooks::Wal;
use rusqlite::{Connection, OpenFlags, params};
use tidegate_domain::{Durability, Timestamp};

use super::book::Group;

mod accept;
mod blocks;
mod checkpoint;
pub(super) mod checksum;
mod dead;
mod dump;
mod erase;
mod error;
mod gaps;
mod head;
mod insert;
pub(super) mod list;
mod load;
mod loss;
mod mend;
mod parties;
pub(super) mod progress;
mod queues;
pub(super) mod read;
mod recover;
mod retain;
mod schema;
mod slots;
mod sound;
mod start;
mod wal;
mod write;

pub(super) use error::{StoreError, StoreErrorKind};
pub use loss::Loss;
pub(super) use parties::Parties;
pub use parties::{PartyUpkeep, UpkeepRows};
pub(super) use read::Stub;
pub(super) use retain::{Removable, Retention};

use head::Head;
use progress::{Progress, ProgressFile, Reached};
use rows::Totals;

use super::rows;

pub(super) const FILE_NAME: &str = "ledger.db";
/// Messages are for their owner alone.
pub(super) const FILE_MODE: u32 = 0o600;
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
    sync: Durability,
    /// Pages in the WAL after the last commit.
    wal_pages: Arc<AtomicI32>,
    /// As of the last commit.
    head: Head,
    parties: Parties,
    progress: ProgressFile,
    progress_synced: Timestamp,
    /// Since when the WAL may hold texts that were erased.
    remnants: Option<erase::Remnants>,
}

/// What a commit changes beside its own rows.
#[derive(Debug, Clone, Copy)]
struct Commit {
    now: Timestamp,
    totals: Totals,
    seq_last: u64,
    life: u64,
}

impl Store {
    /// Opens the file, or makes it. Damage that can be seen is an error here, and so is a ledger that had got further.
    pub(super) fn open(database: &Path, sync: Durability) -> Result<Self, StoreError> {
        let (progress, files) = start::check_files(database)?;
        let known = *progress.last();
        let interrupted = files.checkpoint() > known.checkpoint;
        if sync == Durability::Fsync && !known.synced || interrupted {
            sync_files(database)?;
        }
        let wal = wal::state(database);
        let mut store = Self::connect(database, progress, sync)?;
        if files.wal_bytes > 0 {
            // The life before may have ended between a deletion and the end of what the WAL had of it.
            store.remnants = Some(erase::Remnants::default());
        }
        store.head = schema::ensure(&store.connection, &known).map_err(|e| e.in_file(database, &wal))?;
        if let Err(loss) = start::check_head(database, &store.head, &known, &wal) {
            // Without syncing, a power cut may take what was acknowledged: who chose that is told, and not stopped.
            if known.synced || loss.commits().is_none() {
                return Err(StoreError::lost(database, *loss));
            }
            tracing::error!(%loss, "the ledger lost acknowledged commits, which were not synced (ledger.sync = \"off\")");
        }
        store.adopt_checkpoint(files.checkpoint())?;
        store.head.reached.commits = store.head.reached.commits.max(known.reached.commits);
        store.head.reached.seq_last = store.head.reached.seq_last.max(known.reached.seq_last);
        Ok(store)
    }

    fn connect(database: &Path, progress: ProgressFile, sync: Durability) -> Result<Self, StoreError> {
        let path = database.to_owned();
        // SQLite gives the files beside it the same mode.
        let made = File::options().write(true).create(true).truncate(false).mode(FILE_MODE).open(&path);
        drop(made.map_err(|error| StoreError::of_file(&path, error))?);
        let connection = Connection::open(&path).map_err(|e| StoreError::of(&path, e))?;
        let (head, progress_synced) = (Head::default(), Timestamp::default());
        let (wal_pages, parties, remnants) = (Arc::default(), Parties::default(), None);
        let mut store =
            Self { connection, path, sync, wal_pages, head, parties, progress, progress_synced, remnants };
        store.prepare().map_err(|e| store.error(e))?;
        Ok(store)
    }

    fn prepare(&mut self) -> rusqlite::Result<()> {
        let db = &mut self.connection;
        // A close that was not asked for must not write a WAL into the database that may not belong to it.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", synchronous(self.sync))?;
        db.pragma_update(None, "cache_size", -WRITE_CACHE_KIB)?;
        db.pragma_update(None, "temp_store", "MEMORY")?;
        // What is deleted is overwritten, also in pages that it leaves.
        db.pragma_update(None, "secure_delete", true)?;
        db.pragma_update(None, "journal_size_limit", 64 << 20)?;
        db.set_prepared_statement_cache_capacity(64);
        // SQLite's own checkpointer swallows errors, and a swallowed failed fsync is a lost message: ours looks.
        let wal_pages = self.wal_pages.clone();
        db.wal_hook(Some(move |_: &mut Wal, pages| {
            wal_pages.store(pages, Ordering::Relaxed);
            Ok(())
        }))
    }

    fn set_sync(&mut self, sync: Durability) -> Result<(), StoreError> {
        self.sync = sync;
        self.connection.pragma_update(None, "synchronous", synchronous(sync)).map_err(|e| self.error(e))
    }

    /// A connection for look-ups beside the writer.
    pub(super) fn reader(database: &Path) -> Result<Connection, StoreError> {
        let open = || {
            let db = Connection::open_with_flags(
                database,
                OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
            )?;
            // Checkpoints are the writer's, also the last one.
            db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
            db.pragma_update(None, "query_only", true)?;
            db.pragma_update(None, "cache_size", -READ_CACHE_KIB)?;
            db.busy_timeout(std::time::Duration::from_secs(2))?;
            db.set_prepared_statement_cache_capacity(16);
            Ok(db)
        };
        open().map_err(|e| StoreError::of(database, e))
    }

    /// Writes a group in one durable commit: all of it or nothing.
    pub(super) fn write(&mut self, group: &Group, seq_last: u64, now: Timestamp) -> Result<(), StoreError> {
        let commit = Commit { totals: group.totals, seq_last, ..self.commit_at(now) };
        let step = Parties::step(&group.messages);
        self.transact(commit, |store| {
            store.write_rows(group)?;
            store.parties.write(&store.connection, &step).map_err(|e| store.error(e))
        })?;
        self.parties.apply(step);
        if group.erases() {
            self.note_remnants(now);
        }
        Ok(())
    }

    /// A commit that changes nothing but rows.
    fn commit_at(&self, now: Timestamp) -> Commit {
        let Head { totals, reached } = self.head;
        Commit { now, totals, seq_last: reached.seq_last, life: self.progress.last().life }
    }

    /// Every commit goes this way, so that each is counted, in the ledger and beside it. Answers may be given when this
    /// returns.
    fn transact(
        &mut self,
        commit: Commit,
        write: impl FnOnce(&Self) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let Commit { now, totals, seq_last, life } = commit;
        let Reached { ledger, commits, seq_last: known, .. } = self.head.reached;
        let reached = Reached { ledger, commits: commits + 1, at: now, seq_last: seq_last.max(known) };
        let head = Head { totals, reached };
        self.begin()?;
        write(self)
            .and_then(|()| head::write(&self.connection, &head).map_err(|e| self.error(e)))
            .and_then(|()| self.commit())
            .inspect_err(|_| self.roll_back())?;
        self.head = head;
        let synced = self.sync == Durability::Fsync;
        self.progress.note(Progress { reached, life, synced, ..*self.progress.last() })
    }

    pub(super) fn begin(&self) -> Result<(), StoreError> {
        self.connection
            .prepare_cached("BEGIN IMMEDIATE")
            .and_then(|mut s| s.execute([]))
            .map_err(|e| self.error(e))?;
        Ok(())
    }

    fn commit(&self) -> Result<(), StoreError> {
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
    pub(super) fn write_marks(&mut self, marks: &Marks, now: Timestamp) -> Result<(), StoreError> {
        let commit = Commit { seq_last: marks.seq_last, ..self.commit_at(now) };
        self.transact(commit, |store| {
            let write = || {
                set_meta(&store.connection, "live_from", as_i64(marks.live_from))?;
                set_meta(&store.connection, "quota_seq", as_i64(marks.quota_seq))?;
                set_meta(&store.connection, "seq_last", as_i64(marks.seq_last))
            };
            write().map_err(|e| store.error(e))
        })
    }

    /// Begins the next life: its tokens are larger than all that were given out before.
    pub(super) fn begin_life(&mut self, now: Timestamp) -> Result<u64, StoreError> {
        let life = self.mark("life")?.max(self.progress.last().life) + 1;
        let commit = Commit { life, ..self.commit_at(now) };
        self.transact(commit, |store| {
            set_meta(&store.connection, "life", as_i64(life)).map_err(|e| store.error(e))
        })?;
        Ok(life)
    }

    /// Whether the disk takes a write again.
    pub(super) fn probe(&mut self, now: Timestamp) -> Result<(), StoreError> {
        self.transact(self.commit_at(now), |store| {
            let write = || -> rusqlite::Result<()> {
                let db = &store.connection;
                db.execute(
                    "INSERT OR REPLACE INTO meta (name, value, checksum) VALUES ('probe', zeroblob(?1), 0)",
                    [PROBE_BYTES],
                )?;
                db.execute("DELETE FROM meta WHERE name = 'probe'", []).map(drop)
            };
            write().map_err(|e| store.error(e))
        })
    }

    /// Leaves the files alone from now on: closing would checkpoint, and after a failed fsync nothing that this
    /// process believes about the disk may be written to it.
    pub(super) fn abandon(self) {
        std::mem::forget(self.connection);
    }

    /// Leaves all of it in the one file, unless another connection is still reading.
    pub(super) fn close(self, now: Timestamp) -> Result<(), StoreError> {
        self.end(now).map(drop)
    }

    /// Whether all of it is in the one file, and how far the ledger has got.
    fn end(mut self, now: Timestamp) -> Result<(bool, Progress), StoreError> {
        let whole = self.checkpoint_last(now)?;
        self.progress.settle()?;
        let path = self.path;
        let fail = |e| StoreError::of(&path, e);
        self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map_err(fail)?;
        self.connection.close().map_err(|(_, e)| fail(e))?;
        Ok((whole, *self.progress.last()))
    }

    /// Where look-ups by recipient or user begin.
    pub(super) fn parties(&self) -> &Parties {
        &self.parties
    }

    /// How far it has got.
    pub(super) fn progress(&self) -> &Progress {
        self.progress.last()
    }

    /// Whether a start would find everything, synced or not.
    #[cfg(test)]
    pub(super) fn is_whole(database: &Path) -> bool {
        let known = *start::check_files(database).unwrap().0.last();
        let db = Connection::open(database).unwrap();
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
        let head = schema::ensure(&db, &known).unwrap();
        start::check_head(database, &head, &known, "").is_ok()
    }

    #[cfg(test)]
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    fn error(&self, error: rusqlite::Error) -> StoreError {
        StoreError::of(&self.path, error)
    }
}

/// FULL syncs the WAL at every commit; NORMAL would lose acknowledged messages in a power cut.
fn synchronous(sync: Durability) -> &'static str {
    match sync {
        Durability::Fsync => "FULL",
        Durability::OsBuffer => "OFF",
    }
}

fn set_meta(db: &Connection, name: &str, value: i64) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT OR REPLACE INTO meta (name, value, checksum) VALUES (?1, ?2, ?3)")?
        .execute(params![name, value, checksum::of_columns(&[value], &[Some(name)])])?;
    Ok(())
}

fn get_meta(db: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    use rusqlite::OptionalExtension;
    let sound = |row: &rusqlite::Row<'_>| {
        let value = row.get(0)?;
        let sound = checksum::of_columns(&[value], &[Some(name)]) == row.get::<_, i64>(1)?;
        sound.then_some(value).ok_or_else(|| unsound("meta", &name))
    };
    db.prepare_cached("SELECT value, checksum FROM meta WHERE name = ?1")?.query_row([name], sound).optional()
}

/// A row that is not what was written.
fn unsound(table: &str, row: &dyn std::fmt::Display) -> rusqlite::Error {
    read::nonsense(0, &format!("row {row} of table {table} does not match its checksum"))
}

/// A file that belongs to the database, named after it.
pub(super) fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// What an earlier process wrote without syncing is to be as safe as what this one writes.
fn sync_files(database: &Path) -> Result<(), StoreError> {
    for path in [database.to_owned(), beside(database, wal::SUFFIX)] {
        match File::open(&path).and_then(|file| file.sync_all()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::of_file(&path, error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// SQLite's integers are signed; sequence numbers and durations stay far below the sign.
pub(super) fn as_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

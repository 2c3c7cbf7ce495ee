//! Going on without what is missing: the operator's decision, never the ledger's own.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use tidegate_domain::{Durability, Timestamp};

use super::loss::{self, Loss};
use super::progress::{Progress, ProgressFile, Unreadable};
use super::start::{self, Files};
use super::{
    Commit, FILE_MODE, Store, StoreError, StoreErrorKind, as_i64, beside, head, schema, set_meta, wal,
};

/// Where every accepted loss leaves a line.
const LOSSES_SUFFIX: &str = "-losses";
/// Where it can't be told how many numbers and lives were lost, so many are left out. A WAL holds far fewer: it is moved
/// into the database every 2,000 pages.
const SEQ_GAP: u64 = 1 << 32;
const LIFE_GAP: u64 = 1 << 12;

impl Store {
    /// Makes a ledger startable that is refused because something is missing, or a row damaged. Returns what it was; none when
    /// a start finds everything, and then nothing has changed.
    ///
    /// What is left must make sense: `recover` reads it as a start would. Numbers and tokens that were given out are not
    /// given out again. A WAL that can't be used is kept under another name.
    pub(in crate::embedded) fn accept_loss(
        database: &Path,
        now: Timestamp,
        recover: impl Fn(&Self) -> Result<(), StoreError>,
    ) -> Result<Option<Loss>, StoreError> {
        let refused = match Self::open(database, Durability::Fsync) {
            Ok(mut store) => {
                let removed = store.mend(now, &recover)?;
                store.close(now)?;
                let finding = format!("rows that did not match their checksums: {}", removed.len());
                return Ok((!removed.is_empty()).then(|| Loss { removed, ..Loss::new(finding) }));
            }
            Err(error) => error,
        };
        let Some(loss) = refused.loss.clone().filter(|_| refused.kind == StoreErrorKind::Lost) else {
            return Err(refused);
        };
        let files = Files::look(database)?;
        let (known, current) = match ProgressFile::open(database) {
            Ok(progress) => (Some(*progress.last()), !files.is_newer_than(progress.last())),
            Err(Unreadable::Damaged { rest, .. }) => (rest.map(|rest| *rest), false),
            Err(Unreadable::Absent) => (None, false),
        };
        let kept = KeptWal::keep(database, &files, known.as_ref(), now)?;
        // A database that is gone begins anew, as the same ledger if that is known.
        let mut first = start::new_ledger(database)?;
        first.reached.ledger = known.map_or(first.reached.ledger, |known| known.reached.ledger);
        let accept = || {
            let draft = ProgressFile::draft(database, first)?;
            let mut store = Self::connect(database, draft, Durability::Fsync)?;
            store.head = schema::ensure(&store.connection, &first).map_err(|e| e.in_file(database, ""))?;
            store.check_pages()?;
            let found = store.head.reached;
            let comparable =
                known.map(|known| known.reached).filter(|known| current && known.ledger == found.ledger);
            let removed = store.mend(now, &recover)?;
            let loss = Loss { found: Some(found), known: comparable, removed, ..*loss };
            write_down(database, &loss, kept.as_ref().map(|kept| kept.path.as_path()), now)?;
            let known = known.unwrap_or_default();
            let checkpoint = files.checkpoint().max(known.checkpoint);
            store.go_on(Progress { checkpoint, ..known }, comparable.is_some(), now)?;
            Ok(loss)
        };
        accept().map(Some).inspect_err(|_| {
            ProgressFile::discard_draft(database);
            kept.iter().for_each(KeptWal::put_back);
        })
    }

    /// Removes damaged rows, if there are any and the rest makes sense without them. Says which.
    fn mend(
        &mut self,
        now: Timestamp,
        recover: impl Fn(&Self) -> Result<(), StoreError>,
    ) -> Result<Vec<String>, StoreError> {
        let damage = match recover(self) {
            Ok(()) => return Ok(Vec::new()),
            Err(error) if error.kind == StoreErrorKind::Damaged => error,
            Err(error) => return Err(error),
        };
        self.check_pages()?;
        let rows = self.damaged_rows()?;
        if rows.is_empty() {
            return Err(damage);
        }
        let path = self.path.clone();
        self.remove_rows(&rows, now, |store| {
            recover(store)?;
            // Before the commit: what is gone must have been written down.
            rows.iter().try_for_each(|row| {
                let line = format!("{}: accepted by the operator: {}\n", loss::time(now), row.whole());
                append(&path, &line)
            })
        })?;
        let said: Vec<_> = rows.iter().map(ToString::to_string).collect();
        for row in &said {
            tracing::warn!(%row, "a damaged row was removed");
        }
        Ok(said)
    }

    fn check_pages(&self) -> Result<(), StoreError> {
        let said: String = self
            .connection
            .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
            .map_err(|e| self.error(e))?;
        self.require(said == "ok", &format!("what is left is damaged, too: {said}"))
    }

    /// Beyond everything that was ever given out.
    fn go_on(mut self, known: Progress, comparable: bool, now: Timestamp) -> Result<(), StoreError> {
        let (seq_gap, life_gap) = if comparable { (0, 0) } else { (SEQ_GAP, LIFE_GAP) };
        let reached = &mut self.head.reached;
        // A WAL that is put back later must not pass for the newer one.
        reached.commits = reached.commits.max(known.reached.commits);
        let seq_last = reached.seq_last.max(known.reached.seq_last) + seq_gap;
        let life = self.mark("life")?.max(known.life) + life_gap;
        let checkpoint = known.checkpoint;
        self.progress.note(Progress { checkpoint, successor: 0, ..*self.progress.last() })?;
        let commit = Commit { seq_last, life, ..self.commit_at(now) };
        self.transact(commit, |store| {
            let write = || {
                set_meta(&store.connection, "seq_last", as_i64(seq_last))?;
                set_meta(&store.connection, "life", as_i64(life))
            };
            write().map_err(|e| store.error(e))
        })?;
        self.progress.publish()?;
        self.close_whole(now).map(drop)
    }
}

/// The WAL under another name.
struct KeptWal {
    wal: PathBuf,
    path: PathBuf,
    moved: bool,
}

impl KeptWal {
    /// Keeps a copy of the WAL, which the next commit writes over. One that does not belong to the database is moved away.
    fn keep(
        database: &Path,
        files: &Files,
        known: Option<&Progress>,
        now: Timestamp,
    ) -> Result<Option<Self>, StoreError> {
        if files.wal_bytes == 0 {
            return Ok(None);
        }
        let wal = beside(database, wal::SUFFIX);
        let path = beside(&wal, &format!(".lost-{}", now.millis()));
        let moved = files.database_bytes == 0
            || known.is_some_and(|known| files.is_older_than(known))
            || files.has_older_wal()
            || is_newer_alone(database);
        let kept = if moved { fs::rename(&wal, &path) } else { fs::copy(&wal, &path).map(drop) };
        kept.map_err(|error| StoreError::of_file(&wal, error))?;
        Ok(Some(Self { wal, path, moved }))
    }

    /// Nothing was accepted: everything is as it was.
    fn put_back(&self) {
        let put = if self.moved { fs::rename(&self.path, &self.wal) } else { fs::remove_file(&self.path) };
        if let Err(error) = put {
            tracing::warn!(%error, file = %self.path.display(), "the WAL stays there");
        }
    }
}

/// Whether the WAL takes the database back: it is an older one, or another ledger's.
fn is_newer_alone(database: &Path) -> bool {
    let path = percent_encode(database.as_os_str().as_encoded_bytes(), NON_ALPHANUMERIC);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let alone = Connection::open_with_flags(format!("file:{path}?immutable=1"), flags);
    let with_wal = Connection::open(database).and_then(|db| {
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        Ok(db)
    });
    let head =
        |db: rusqlite::Result<Connection>| db.and_then(|db| head::read(&db)).ok().map(|head| head.reached);
    match (head(alone), head(with_wal)) {
        (Some(alone), Some(with_wal)) => alone.ledger != with_wal.ledger || alone.commits > with_wal.commits,
        (alone, _) => alone.is_some(),
    }
}

/// The line about the loss in `ledger.db-losses`, for the operator now and for later questions.
fn write_down(database: &Path, loss: &Loss, kept: Option<&Path>, now: Timestamp) -> Result<(), StoreError> {
    let kept = kept.map_or_else(String::new, |kept| format!("; the WAL is kept as {}", kept.display()));
    let line = format!("{}: accepted by the operator: {loss}{kept}\n", loss::time(now));
    tracing::warn!(%loss, kept, "a loss was accepted");
    append(database, &line)
}

fn append(database: &Path, line: &str) -> Result<(), StoreError> {
    let path = beside(database, LOSSES_SUFFIX);
    let mut open = File::options();
    let file = open.append(true).create(true).mode(FILE_MODE).open(&path);
    file.and_then(|mut file| file.write_all(line.as_bytes()).and_then(|()| file.sync_all()))
        .map_err(|error| StoreError::of_file(&path, error))
}

use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::Options;
use super::store::{FILE_MODE, FILE_NAME, Loss, StoreError, StoreErrorKind, beside};

const DIRECTORY_MODE: u32 = 0o700;
const PID_FILE: &str = "lock";
/// Where an import grows until it is whole; whatever an earlier one left there is of no use.
const STAGING: &str = "import";
/// What belongs to the database, by what follows its name.
const SUFFIXES: [&str; 5] = ["", "-wal", "-shm", "-progress", "-losses"];

/// Why the ledger could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{}: cannot be used as a data directory: {cause}", dir.display())]
    Directory { dir: PathBuf, cause: std::io::Error },
    #[error("{}: in use by another tidegate{}; stop it, or choose another data directory", dir.display(), by(pid.as_deref()))]
    InUse { dir: PathBuf, pid: Option<String> },
    #[error("{}: a file is expected there, and this is none; move it away, or choose another data directory", .0.display())]
    NotAFile(PathBuf),
    #[error("{}: there is no ledger", .0.display())]
    Missing(PathBuf),
    #[error("{}: there is a ledger with something in it already; choose an empty data directory", .0.display())]
    NotEmpty(PathBuf),
    #[error("{0}")]
    Option(&'static str),
    #[error("{message}")]
    Store { message: String, damaged: bool },
    /// Something that was acknowledged is missing; [`accept_loss`](super::accept_loss) goes on without it.
    #[error("{message}")]
    Lost { message: String, loss: Box<Loss> },
    #[error("cannot start the writer's thread: {0}")]
    Thread(std::io::Error),
}

fn by(pid: Option<&str>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

impl From<StoreError> for OpenError {
    fn from(error: StoreError) -> Self {
        let message = error.to_string();
        match error.loss {
            Some(loss) => Self::Lost { message, loss },
            None => Self::Store { message, damaged: error.kind == StoreErrorKind::Damaged },
        }
    }
}

/// The data directory, locked for as long as this lives: keys are unique in one process's memory, so there
/// must be exactly one.
///
/// The lock is on the database itself. Whatever name, symlink or hard link leads to it, it is the same file. Closing any
/// descriptor of a file ends the locks that SQLite has on it, so this one is closed after all connections.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    database: PathBuf,
    lock: File,
    /// There was no such directory before.
    made: bool,
}

impl Directory {
    pub(super) fn lock(path: &Path) -> Result<Self, OpenError> {
        let fail = |cause| OpenError::Directory { dir: path.to_owned(), cause };
        let made = !path.exists();
        fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path).map_err(fail)?;
        let name = path.join(FILE_NAME);
        require_file(name.clone())?;
        let in_use = || OpenError::InUse { dir: path.to_owned(), pid: pid(path) };
        let lock = lock_file(&name).map_err(fail)?.ok_or_else(in_use)?;
        // SQLite puts its files beside the one that a symlink leads to.
        let database = fs::canonicalize(&name).map_err(fail)?;
        // An import may have put another file there meanwhile.
        if !is_same(&lock, &database).map_err(fail)? {
            return Err(in_use());
        }
        // Opening a pipe would wait for its other end.
        SUFFIXES.iter().try_for_each(|suffix| require_file(beside(&database, suffix)))?;
        let directory = Self { path: path.to_owned(), database, lock, made };
        directory.narrow();
        // The number is for people; a full disk must not keep the ledger from opening.
        let _ = open(&path.join(PID_FILE)).and_then(|mut file| {
            file.set_len(0)?;
            writeln!(file, "{}", std::process::id())
        });
        Ok(directory)
    }

    /// The database, by a name without symlinks.
    pub(super) fn database(&self) -> &Path {
        &self.database
    }

    /// Releases the lock. The file stays open: a reader may still use its connection.
    ///
    /// Closing the file would not do: a child that is just being started by another thread holds a copy of it until
    /// it runs its own program, and the lock with it.
    pub(super) fn release(&self) {
        let _ = self.lock.unlock();
    }

    /// Where an import grows: on the same file system.
    pub(super) fn staging(&self) -> PathBuf {
        self.database.with_file_name(STAGING)
    }

    /// Removes what a killed import left, which holds messages in the clear. A directory with anything else in it is not an
    /// import's.
    pub(super) fn clear_staging(&self) {
        let staging = self.staging();
        let Ok(files) = fs::read_dir(&staging) else { return };
        let is_ours =
            |file: fs::DirEntry| file.file_name().as_encoded_bytes().starts_with(FILE_NAME.as_bytes());
        if !files.into_iter().all(|file| file.is_ok_and(is_ours)) {
            return;
        }
        match fs::remove_dir_all(&staging) {
            Ok(()) => tracing::info!(dir = %staging.display(), "removed: an import did not come to its end"),
            Err(error) => {
                tracing::warn!(%error, dir = %staging.display(), "an import's rest cannot be removed")
            }
        }
    }

    /// Removes a directory that was made for a ledger which did not come.
    pub(super) fn unmake(&self) {
        let is_empty = fs::metadata(&self.database).is_ok_and(|found| found.len() == 0);
        if self.made && is_empty && !beside(&self.database, "-progress").exists() {
            let removed = fs::remove_file(&self.database)
                .and_then(|()| fs::remove_file(self.path.join(PID_FILE)))
                .and_then(|()| fs::remove_dir(&self.path));
            if let Err(error) = removed {
                tracing::warn!(%error, dir = %self.path.display(), "the new directory cannot be removed");
            }
        }
    }

    /// Puts a whole database in the place of this one, and locks it before another process can see it.
    pub(super) fn replace(&mut self, whole: &Path) -> std::io::Result<()> {
        let lock = lock_file(whole)?.ok_or_else(|| std::io::Error::other("the new database is in use"))?;
        fs::rename(whole, &self.database)?;
        self.lock = lock;
        Ok(())
    }

    /// Makes the directory's own entries durable: SQLite syncs what is in its files, not that they exist.
    pub(super) fn sync(&self) -> Result<(), OpenError> {
        let sync = |dir: &Path| File::open(dir).and_then(|dir| dir.sync_all());
        let parent = |path: &Path| {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            parent.unwrap_or(Path::new(".")).to_owned()
        };
        sync(&self.path)
            .and_then(|()| sync(&parent(&self.path)))
            .and_then(|()| sync(&parent(&self.database)))
            .map_err(|cause| OpenError::Directory { dir: self.path.clone(), cause })
    }

    /// What an earlier version left readable for others.
    fn narrow(&self) {
        let files = SUFFIXES.iter().map(|suffix| beside(&self.database, suffix));
        for path in files.chain([self.path.join(PID_FILE)]) {
            let narrowed = fs::metadata(&path).and_then(|found| {
                let wide = found.permissions().mode() & 0o777 & !FILE_MODE != 0;
                if wide { fs::set_permissions(&path, fs::Permissions::from_mode(FILE_MODE)) } else { Ok(()) }
            });
            if let Err(error) = narrowed
                && error.kind() != ErrorKind::NotFound
            {
                tracing::warn!(%error, file = %path.display(), "others may read it, and that can't be changed");
            }
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.release();
    }
}

/// What is there must be a file, or lead to one.
fn require_file(path: PathBuf) -> Result<(), OpenError> {
    if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
        Err(OpenError::NotAFile(path))
    } else {
        Ok(())
    }
}

/// None when another process has it.
fn lock_file(path: &Path) -> std::io::Result<Option<File>> {
    let file = open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).mode(FILE_MODE).open(path)
}

fn is_same(file: &File, path: &Path) -> std::io::Result<bool> {
    let (file, named) = (file.metadata()?, fs::metadata(path)?);
    Ok((file.dev(), file.ino()) == (named.dev(), named.ino()))
}

/// The pid of the process that wrote the file last.
fn pid(path: &Path) -> Option<String> {
    let pid = fs::read_to_string(path.join(PID_FILE)).ok()?;
    Some(pid.trim().to_owned()).filter(|pid| !pid.is_empty() && pid.len() < 32)
}

impl Options {
    pub(super) fn check(&self) -> Result<(), OpenError> {
        let rules = [
            (self.pending_max >= 1 && self.pending_max <= 1 << 31, "pending_max must be 1 to 2147483648"),
            (self.pending_hard_max <= 1 << 32, "pending_hard_max must be at most 4294967296"),
            (self.intake_max >= 1, "intake_max must be at least 1"),
            (self.group_max >= 1, "group_max must be at least 1"),
            (self.slots_max >= 1 && self.slots_max <= 1 << 31, "slots_max must be 1 to 2147483648"),
            (self.readers >= 1, "readers must be at least 1"),
            (self.idempotency_keys_max >= 1, "idempotency_keys_max must be at least 1"),
            (
                self.retention_ms >= self.idempotency_window_ms,
                "retention_ms must not be shorter than idempotency_window_ms",
            ),
        ];
        rules.iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, rule)| Err(OpenError::Option(rule)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_named_and_never_waited_for() {
        for suffix in SUFFIXES {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(format!("{FILE_NAME}{suffix}"));
            let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
            assert!(made.success());
            let refused = Directory::lock(dir.path()).unwrap_err();
            assert!(
                matches!(&refused, OpenError::NotAFile(named) if named.ends_with(path.file_name().unwrap())),
                "{refused}"
            );
            fs::remove_file(&path).unwrap();
            fs::create_dir(&path).unwrap();
            let refused = Directory::lock(dir.path()).unwrap_err();
            assert!(matches!(refused, OpenError::NotAFile(_)), "{refused}");
        }
    }

    #[test]
    fn what_a_killed_import_left_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::lock(dir.path()).unwrap();
        for (file, goes) in [("ledger.db-wal", true), ("notes.txt", false)] {
            fs::create_dir(directory.staging()).unwrap();
            fs::write(directory.staging().join(file), "text").unwrap();
            directory.clear_staging();
            assert_ne!(directory.staging().exists(), goes, "{file}");
        }
    }

    #[test]
    fn a_directory_that_was_made_for_nothing_goes_again_and_an_older_one_stays() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("new");
        Directory::lock(&new).unwrap().unmake();
        assert!(!new.exists());
        Directory::lock(dir.path()).unwrap().unmake();
        assert!(dir.path().exists());
    }

    #[test]
    fn a_closed_ledger_is_free_although_a_child_still_holds_its_lock_file() {
        let dir = tempfile::tempdir().unwrap();
        let first = Directory::lock(dir.path()).unwrap();
        let child = first.lock.try_clone().unwrap();
        assert!(matches!(Directory::lock(dir.path()), Err(OpenError::InUse { pid: Some(_), .. })));
        drop(first);
        Directory::lock(dir.path()).unwrap();
        drop(child);
    }
}

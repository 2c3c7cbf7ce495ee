use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::Options;
use super::store::StoreError;

/// Why the ledger could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{}: cannot be used as a data directory: {cause}", dir.display())]
    Directory { dir: PathBuf, cause: std::io::Error },
    #[error("{}: in use by another tidegate{}; stop it, or choose another data directory", dir.display(), by(pid.as_deref()))]
    InUse { dir: PathBuf, pid: Option<String> },
    #[error("{}: there is no ledger", .0.display())]
    Missing(PathBuf),
    #[error("{}: there is a ledger with something in it already; choose an empty data directory", .0.display())]
    NotEmpty(PathBuf),
    #[error("{0}")]
    Option(&'static str),
    #[error("{message}")]
    Store { message: String, damaged: bool },
    #[error("cannot start the writer's thread: {0}")]
    Thread(std::io::Error),
}

fn by(pid: Option<&str>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

impl From<StoreError> for OpenError {
    fn from(error: StoreError) -> Self {
        let damaged = error.kind == super::store::StoreErrorKind::Damaged;
        Self::Store { message: error.to_string(), damaged }
    }
}

/// The data directory, locked for as long as this lives: keys are unique in one process's memory, so there
/// must be exactly one.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    lock: File,
}

impl Directory {
    pub(super) fn lock(path: &Path) -> Result<Self, OpenError> {
        let fail = |cause| OpenError::Directory { dir: path.to_owned(), cause };
        // Messages are nobody else's business.
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(fail)?;
        let mut open = File::options();
        open.read(true).write(true).create(true).truncate(false);
        let mut lock = open.open(path.join("lock")).map_err(fail)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let read = lock.take(32).read_to_string(&mut pid);
                let pid = Some(pid.trim().to_owned()).filter(|pid| read.is_ok() && !pid.is_empty());
                return Err(OpenError::InUse { dir: path.to_owned(), pid });
            }
            Err(TryLockError::Error(cause)) => return Err(fail(cause)),
        }
        // The number is for people; a full disk must not keep the ledger from opening.
        let _ = lock
            .set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| writeln!(lock, "{}", std::process::id()));
        Ok(Self { path: path.to_owned(), lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the directory's own entries durable: SQLite syncs what is in its files, not that they exist.
    pub(super) fn sync(&self) -> Result<(), OpenError> {
        let sync = |dir: &Path| File::open(dir).and_then(|dir| dir.sync_all());
        let parent =
            self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        sync(&self.path)
            .and_then(|()| sync(parent))
            .map_err(|cause| OpenError::Directory { dir: self.path.clone(), cause })
    }
}

impl Drop for Directory {
    /// Closing the file would not do: a child that is just being started by another thread holds a copy of it until
    /// it runs its own program, and the lock with it.
    fn drop(&mut self) {
        let _ = self.lock.unlock();
    }
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

use std::path::{Path, PathBuf};

use rusqlite::ffi::{SQLITE_IOERR_SHMMAP, SQLITE_IOERR_SHMOPEN, SQLITE_IOERR_SHMSIZE, SQLITE_NOTADB};
use rusqlite::{Error, ErrorCode};
use tidegate_domain::LedgerError;

use super::loss::Loss;

/// What went wrong with the file, by what may be done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::embedded) struct StoreError {
    pub(in crate::embedded) kind: StoreErrorKind,
    pub(in crate::embedded) message: String,
    pub(in crate::embedded) loss: Option<Box<Loss>>,
    file: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::embedded) enum StoreErrorKind {
    /// The disk is full: nothing was written, and it may pass.
    NoSpace,
    /// What is on disk makes no sense.
    Damaged,
    /// Something that was acknowledged is not on disk any more.
    Lost,
    /// A read, write or fsync failed: nobody knows what is on disk until it is read again.
    Failed,
}

impl StoreError {
    pub(in crate::embedded) fn of(file: &Path, error: Error) -> Self {
        Self::new(kind_of(&error), message_of(&error), file)
    }

    pub(in crate::embedded) fn of_file(file: &Path, error: std::io::Error) -> Self {
        let full = error.kind() == std::io::ErrorKind::StorageFull;
        let kind = if full { StoreErrorKind::NoSpace } else { StoreErrorKind::Failed };
        Self::new(kind, error.to_string(), file)
    }

    pub(in crate::embedded) fn lost(file: &Path, loss: Loss) -> Self {
        let message = loss.to_string();
        Self { loss: Some(Box::new(loss)), ..Self::new(StoreErrorKind::Lost, message, file) }
    }

    pub(in crate::embedded) fn failed(file: &Path, message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Failed, message.into(), file)
    }

    fn new(kind: StoreErrorKind, message: String, file: &Path) -> Self {
        Self { kind, message, loss: None, file: file.to_owned() }
    }

    pub(in crate::embedded) fn damaged(file: &Path, message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Damaged, message.into(), file)
    }

    pub(in crate::embedded) fn of_message(self, seq: u64) -> Self {
        self.among(&format!("message {seq}"))
    }

    /// Names what was being read.
    pub(in crate::embedded) fn among(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// What it means to somebody who only wanted to read.
    pub(in crate::embedded) fn on_reading(self) -> LedgerError {
        match self.kind {
            StoreErrorKind::Damaged | StoreErrorKind::Lost => LedgerError::Corrupt(self.to_string()),
            StoreErrorKind::Failed | StoreErrorKind::NoSpace => LedgerError::Unavailable(self.to_string()),
        }
    }
}

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.kind {
            StoreErrorKind::NoSpace => "no room",
            StoreErrorKind::Damaged => "damaged",
            StoreErrorKind::Lost => "incomplete",
            StoreErrorKind::Failed => "failed",
        };
        write!(f, "{}: {what}: {}", self.file.display(), self.message)
    }
}

impl std::error::Error for StoreError {}

/// Without what the library says about its own types.
fn message_of(error: &Error) -> String {
    match error {
        Error::FromSqlConversionFailure(_, _, cause) => cause.to_string(),
        Error::InvalidColumnType(_, column, _) => format!("a value of column {column} is of another type"),
        Error::IntegralValueOutOfRange(column, value) => {
            format!("the value {value} in column {column} is out of range")
        }
        other => other.to_string(),
    }
}

fn kind_of(error: &Error) -> StoreErrorKind {
    let Error::SqliteFailure(code, _) = error else {
        return match error {
            // A column of the wrong type or an impossible value is not what we wrote.
            Error::FromSqlConversionFailure(..)
            | Error::IntegralValueOutOfRange(..)
            | Error::InvalidColumnType(..) => StoreErrorKind::Damaged,
            _ => StoreErrorKind::Failed,
        };
    };
    match (code.code, code.extended_code) {
        (ErrorCode::DiskFull, _) => StoreErrorKind::NoSpace,
        // The shared index of the WAL could not grow; it holds no data.
        (_, SQLITE_IOERR_SHMSIZE | SQLITE_IOERR_SHMMAP | SQLITE_IOERR_SHMOPEN) => StoreErrorKind::NoSpace,
        (ErrorCode::DatabaseCorrupt, _) | (ErrorCode::NotADatabase, _) | (_, SQLITE_NOTADB) => {
            StoreErrorKind::Damaged
        }
        _ => StoreErrorKind::Failed,
    }
}

//! What must be there before a ledger is opened. SQLite makes up for every file that is missing with an empty one.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use super::head::Head;
use super::loss::Loss;
use super::progress::{Progress, ProgressFile, Reached, SUFFIX, Unreadable};
use super::{StoreError, beside, wal};

/// Of the first page of the database, by SQLite's file format.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) pages: u32,
    page_bytes: u32,
    /// `user_version`: the number of the checkpoint that wrote this page.
    pub(super) checkpoint: u32,
    /// `application_id`: whose page it is, once there was a checkpoint.
    application: u32,
}

/// The files beside each other, before anything is opened.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) database_bytes: u64,
    pub(super) wal_bytes: u64,
    pub(super) header: Option<Header>,
    pub(super) wal: wal::Content,
}

impl Files {
    pub(super) fn look(database: &Path) -> Result<Self, StoreError> {
        Ok(Self {
            database_bytes: bytes(database)?,
            wal_bytes: bytes(&beside(database, wal::SUFFIX))?,
            header: header(database).map_err(|error| StoreError::of_file(database, error))?,
            wal: wal::content(database)?,
        })
    }

    /// Whether the database is from before the last checkpoint: the WAL does not hold what lies between.
    pub(super) fn is_older_than(&self, known: &Progress) -> bool {
        self.header.is_some_and(|header| header.checkpoint < known.checkpoint)
    }

    /// The number of the checkpoint that the database was last written by.
    pub(super) fn checkpoint(&self) -> u32 {
        self.header.map_or(0, |header| header.checkpoint)
    }

    /// Whether the database is from after a checkpoint that the progress knows nothing of. A crash in the middle of a
    /// checkpoint leaves that too, with a WAL that has all of it: it is cut or begun anew only when the progress is synced.
    pub(super) fn is_newer_than(&self, known: &Progress) -> bool {
        let number = self.checkpoint();
        number > known.checkpoint && number != known.successor && self.wal.checkpoint < Some(number)
    }

    /// Whether the WAL is from before the checkpoint that wrote the database.
    pub(super) fn has_older_wal(&self) -> bool {
        self.wal.checkpoint.is_some_and(|checkpoint| checkpoint < self.checkpoint())
    }

    /// Whether the database is another ledger's, whatever the WAL makes of it.
    fn is_of_another(&self, known: &Progress) -> bool {
        self.header.is_some_and(|header| {
            header.checkpoint > 0 && header.application != application_of(known.reached.ledger)
        })
    }

    /// Whether the end of the database is missing. In the middle of a checkpoint it is shorter than its header says, and
    /// never shorter than after the checkpoint before; after a VACUUM it is, and its header knows.
    fn is_cut(&self, known: &Progress) -> bool {
        let whole =
            |header: Header| self.database_bytes >= u64::from(header.pages) * u64::from(header.page_bytes);
        self.database_bytes < known.database_bytes && !self.header.is_some_and(whole)
    }
}

/// Checks the files against each other. Makes the file of progress when there is no ledger at all.
pub(super) fn check_files(database: &Path) -> Result<(ProgressFile, Files), StoreError> {
    let files = Files::look(database)?;
    let lost = |loss: Loss| Err(StoreError::lost(database, loss));
    let name = beside(database, SUFFIX);
    let progress = match ProgressFile::open(database) {
        Ok(progress) => progress,
        Err(Unreadable::Absent) if files.database_bytes == 0 && files.wal_bytes == 0 => {
            return Ok((ProgressFile::create(database, new_ledger(database)?)?, files));
        }
        Err(Unreadable::Absent) => {
            return lost(Loss::new(format!("{} is not there", name.display())));
        }
        Err(Unreadable::Damaged { why, .. }) => return lost(Loss::new(format!("{}: {why}", name.display()))),
    };
    let known = *progress.last();
    if files.database_bytes == 0 {
        // Before its first commit a ledger has promised nothing; what was not synced may be gone.
        if known.reached.commits == 0 || !known.synced {
            return Ok((progress, files));
        }
        let nothing = Reached { commits: 0, seq_last: 0, ..known.reached };
        return lost(Loss::new("the file is not there, or empty").found(nothing).known(known.reached));
    }
    if files.is_of_another(&known) {
        return lost(Loss::new(format!("the file and {} are from different ledgers", name.display())));
    }
    if files.is_older_than(&known) {
        return lost(Loss::new("the file is older than the last checkpoint").known(known.reached));
    }
    if files.is_cut(&known) {
        let (found, had) = (files.database_bytes, known.database_bytes);
        let message = format!("the file has {found} bytes, and had {had} after the last checkpoint");
        return Err(StoreError::damaged(database, message));
    }
    // Without syncing, pages may reach the disk in any order.
    if !known.synced {
        return Ok((progress, files));
    }
    if files.is_newer_than(&known) {
        let finding =
            format!("the file is newer than {}, and the WAL does not hold what lies between", name.display());
        return lost(Loss::new(finding));
    }
    if files.has_older_wal() {
        let wal = beside(database, wal::SUFFIX);
        return lost(Loss::new(format!("{} is older than the file", wal.display())).known(known.reached));
    }
    if let Some(frame) = files.wal.damaged {
        let wal = beside(database, wal::SUFFIX);
        let finding = format!(
            "{}: frame {frame} does not match its checksum, and committed frames follow it",
            wal.display()
        );
        return lost(Loss::new(finding).known(known.reached));
    }
    Ok((progress, files))
}

/// What the header of a ledger's database has as `application_id`.
#[expect(clippy::cast_possible_truncation, reason = "what fits into the header")]
pub(super) fn application_of(ledger: u64) -> u32 {
    ledger as u32 & 0x7fff_ffff
}

/// Checks what the rows say against the progress. `wal` is the state of the WAL before SQLite opened it.
pub(super) fn check_head(database: &Path, head: &Head, known: &Progress, wal: &str) -> Result<(), Box<Loss>> {
    let name = beside(database, SUFFIX);
    if head.reached.ledger != known.reached.ledger {
        let finding = format!("the file and {} are from different ledgers", name.display());
        return Err(Box::new(Loss::new(finding)));
    }
    if head.reached.commits < known.reached.commits {
        let loss = Loss::new(format!("the file is behind {}; {wal}", name.display()));
        return Err(Box::new(loss.found(head.reached).known(known.reached)));
    }
    Ok(())
}

pub(super) fn new_ledger(database: &Path) -> Result<Progress, StoreError> {
    let random =
        getrandom::u64().map_err(|error| StoreError::failed(database, format!("no randomness: {error}")))?;
    // SQLite's integers are signed.
    let reached = Reached { ledger: random >> 1, ..Reached::default() };
    Ok(Progress { reached, ..Progress::default() })
}

fn bytes(path: &Path) -> Result<u64, StoreError> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(found.len()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(error) => Err(StoreError::of_file(path, error)),
    }
}

/// Closed again before SQLite opens the file: closing any descriptor of a file ends the locks that a process has on it.
fn header(database: &Path) -> std::io::Result<Option<Header>> {
    let mut bytes = [0; 100];
    let read = File::open(database).and_then(|mut file| file.read_exact(&mut bytes));
    match read {
        Ok(()) => {}
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    }
    let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let page_bytes = match u16::from_be_bytes([bytes[16], bytes[17]]) {
        1 => 65_536,
        bytes => bytes.into(),
    };
    // SQLite says what it thinks of a file that is no database.
    let is_database = bytes.starts_with(b"SQLite format 3\0");
    Ok(is_database.then(|| Header {
        pages: word(28),
        page_bytes,
        checkpoint: word(60),
        application: word(68),
    }))
}

//! How far the ledger has got, in a file of its own.
//!
//! SQLite takes a WAL that is missing, cut or damaged for an empty one, and a start would continue from the last
//! checkpoint without a word. This file tells how many commits there have been. It is written after a commit is synced
//! and before the commit is answered, so it is never ahead of the ledger; after a power cut it may be behind, which
//! raises no alarm.
//!
//! A power cut may tear a record that is being written, and must not stop a start; a damaged record must, because the
//! other one may be older than what is missing. So each slot holds its record twice, in sectors of their own: torn is one of
//! the copies at the most, and a slot without a copy that can be read is damaged.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use tidegate_domain::Timestamp;

use super::{FILE_MODE, StoreError, beside};

/// Behind the name of the database.
pub(in crate::embedded) const SUFFIX: &str = "-progress";
const MAGIC: u64 = u64::from_le_bytes(*b"tideprog");
const FORMAT: u64 = 1;
/// Each slot lies in a sector of its own, so that a torn write costs one of them at the most.
const SLOT_BYTES: u64 = 4_096;
const WORDS: usize = 12;
const RECORD_BYTES: usize = (WORDS + 1) * 8;
/// Where the copies of a record lie in its slot.
const COPIES: [u64; 2] = [0, SECOND_COPY as u64];
const SECOND_COPY: usize = 2_048;

/// How far a ledger has got.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::embedded) struct Reached {
    /// Which ledger this is: drawn when it was made.
    pub(in crate::embedded) ledger: u64,
    /// Commits so far.
    pub(in crate::embedded) commits: u64,
    /// When the last of them was made.
    pub(in crate::embedded) at: Timestamp,
    /// The last sequence number that was given out.
    pub(in crate::embedded) seq_last: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::embedded) struct Progress {
    pub(in crate::embedded) reached: Reached,
    /// How often the ledger was opened: tokens of leases begin with it.
    pub(in crate::embedded) life: u64,
    /// The number of the last checkpoint that is synced, as the database's header has it.
    pub(in crate::embedded) checkpoint: u32,
    /// The size of the database after that checkpoint.
    pub(in crate::embedded) database_bytes: u64,
    /// Whether the commits were synced. Those that were not may be gone after a power cut.
    pub(in crate::embedded) synced: bool,
    /// The checkpoint of a whole database that is about to take this one's place, or 0.
    pub(in crate::embedded) successor: u32,
}

/// Two slots with a record each; the newer one counts. Records go to the same slot until they are synced, then to the
/// other: at every moment one slot is not being written.
#[derive(Debug)]
pub(super) struct ProgressFile {
    file: File,
    path: PathBuf,
    last: Progress,
    /// Counts the records, so that the newer of the two is known.
    written: u64,
    slot: u64,
    dirty: bool,
    full: bool,
}

/// Why there is no record.
#[derive(Debug)]
pub(super) enum Unreadable {
    Absent,
    /// What can still be read may be older than what can't.
    Damaged {
        why: String,
        rest: Option<Box<Progress>>,
    },
}

impl Unreadable {
    fn damaged(why: String) -> Self {
        Self::Damaged { why, rest: None }
    }
}

impl ProgressFile {
    pub(super) fn create(database: &Path, first: Progress) -> Result<Self, StoreError> {
        let mut made = Self::draft(database, first)?;
        made.publish()?;
        Ok(made)
    }

    /// A file that is not in its place yet.
    pub(super) fn draft(database: &Path, first: Progress) -> Result<Self, StoreError> {
        let path = beside(database, SUFFIX);
        let fail = |error| StoreError::of_file(&path, error);
        let mut open = File::options();
        let open = open.read(true).write(true).create(true).truncate(true).mode(FILE_MODE);
        let file = open.open(draft_path(&path)).map_err(fail)?;
        file.set_len(2 * SLOT_BYTES).map_err(fail)?;
        Ok(Self { file, path, last: first, written: 0, slot: 0, dirty: false, full: false })
    }

    /// Puts it there, instead of an older one.
    pub(super) fn publish(&mut self) -> Result<(), StoreError> {
        self.settle()?;
        fs::rename(draft_path(&self.path), &self.path)
            .and_then(|()| sync_directory(&self.path))
            .map_err(|error| StoreError::of_file(&self.path, error))
    }

    /// Removes a file that was never put in its place.
    pub(super) fn discard_draft(database: &Path) {
        let path = draft_path(&beside(database, SUFFIX));
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(%error, file = %path.display(), "cannot be removed");
        }
    }

    pub(super) fn open(database: &Path) -> Result<Self, Unreadable> {
        let path = beside(database, SUFFIX);
        let damaged = |error: std::io::Error| Unreadable::damaged(format!("cannot be read: {error}"));
        let file = match File::options().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(Unreadable::Absent),
            Err(error) => return Err(damaged(error)),
        };
        // What a killed process left in memory only: the other slot is written next, and one of the two must be safe.
        file.sync_data().map_err(damaged)?;
        let bytes = file.metadata().map_err(damaged)?.len();
        let mut slots: [Option<(u64, u64, Progress)>; 2] = [None; 2];
        for (slot, newest) in (0..).zip(&mut slots) {
            for copy in COPIES {
                let found = read(&file, slot * SLOT_BYTES + copy).map_err(damaged)?;
                if found == Found::Damaged {
                    tracing::warn!(file = %path.display(), "a copy of a record is torn or damaged; the other one counts");
                }
                if let Found::Record(written, last) = found
                    && newest.is_none_or(|(known, ..)| known < written)
                {
                    *newest = Some((written, slot, last));
                }
            }
        }
        let rest = slots.iter().flatten().max_by_key(|(written, ..)| *written).copied();
        let unreadable = slots.iter().filter(|slot| slot.is_none()).count();
        let why = match unreadable {
            _ if bytes < 2 * SLOT_BYTES => Some(format!("has {bytes} bytes instead of {}", 2 * SLOT_BYTES)),
            0 => None,
            1 => {
                Some("one of its two records matches no checksum, and may have been the newer one".to_owned())
            }
            _ => Some("neither of its records matches its checksum".to_owned()),
        };
        let (written, slot, last) = match (why, rest) {
            (None, Some(newest)) => newest,
            (why, rest) => {
                let rest = rest.map(|(.., last)| Box::new(last));
                return Err(Unreadable::Damaged { why: why.unwrap_or_default(), rest });
            }
        };
        Ok(Self { file, path, last, written, slot: 1 - slot, dirty: false, full: false })
    }

    pub(super) fn last(&self) -> &Progress {
        &self.last
    }

    /// Writes a record, and leaves the syncing for later. A disk without room keeps the file as it is: it is behind
    /// then, as after a power cut.
    pub(super) fn note(&mut self, progress: Progress) -> Result<(), StoreError> {
        self.last = progress;
        self.written += 1;
        let record = encode(self.written, &progress);
        let mut bytes = [0; SECOND_COPY + RECORD_BYTES];
        bytes[..RECORD_BYTES].copy_from_slice(&record);
        bytes[SECOND_COPY..].copy_from_slice(&record);
        match self.file.write_all_at(&bytes, self.slot * SLOT_BYTES) {
            Ok(()) => self.full = false,
            Err(error) if error.kind() == ErrorKind::StorageFull => {
                if !std::mem::replace(&mut self.full, true) {
                    tracing::warn!(%error, file = %self.path.display(), "no room for the ledger's progress");
                }
            }
            Err(error) => return Err(StoreError::of_file(&self.path, error)),
        }
        self.dirty = true;
        Ok(())
    }

    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        if self.dirty {
            self.file.sync_data().map_err(|error| StoreError::of_file(&self.path, error))?;
            self.dirty = false;
            self.slot = 1 - self.slot;
        }
        Ok(())
    }

    /// The same record in both slots, synced: what a clean stop leaves.
    pub(super) fn settle(&mut self) -> Result<(), StoreError> {
        for _ in 0..2 {
            self.note(self.last)?;
            self.sync()?;
        }
        Ok(())
    }
}

fn draft_path(path: &Path) -> PathBuf {
    beside(path, ".new")
}

fn sync_directory(path: &Path) -> std::io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

/// What lies where a copy of a record should be.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Record(u64, Progress),
    /// Nothing was written there: an earlier version wrote one copy.
    Nothing,
    Damaged,
}

fn read(file: &File, at: u64) -> std::io::Result<Found> {
    let mut bytes = [0; RECORD_BYTES];
    match file.read_exact_at(&mut bytes, at) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    }
    let is_empty = bytes.iter().all(|byte| *byte == 0);
    let otherwise = if is_empty { Found::Nothing } else { Found::Damaged };
    Ok(decode(&bytes).map_or(otherwise, |(written, last)| Found::Record(written, last)))
}

fn encode(written: u64, progress: &Progress) -> [u8; RECORD_BYTES] {
    let Progress { reached, life, checkpoint, database_bytes, synced, successor } = *progress;
    let Reached { ledger, commits, at, seq_last } = reached;
    let at = at.millis().cast_unsigned();
    let words: [u64; WORDS] = [
        MAGIC,
        FORMAT,
        written,
        ledger,
        commits,
        at,
        seq_last,
        life,
        checkpoint.into(),
        database_bytes,
        synced.into(),
        successor.into(),
    ];
    let mut bytes = [0; RECORD_BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let sum = u64::from(crc32fast::hash(&bytes[..WORDS * 8]));
    bytes[WORDS * 8..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// A record with its number; none when it is not what was written.
fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<(u64, Progress)> {
    let mut words = [0; WORDS + 1];
    for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(place.try_into().ok()?);
    }
    let [
        MAGIC,
        FORMAT,
        written,
        ledger,
        commits,
        at,
        seq_last,
        life,
        checkpoint,
        database_bytes,
        synced,
        successor,
        sum,
    ] = words
    else {
        return None;
    };
    if sum != u64::from(crc32fast::hash(&bytes[..WORDS * 8])) {
        return None;
    }
    let at = Timestamp::from_millis(at.cast_signed());
    let reached = Reached { ledger, commits, at, seq_last };
    let (checkpoint, successor) = (checkpoint.try_into().ok()?, successor.try_into().ok()?);
    let synced = synced == 1;
    Some((written, Progress { reached, life, checkpoint, database_bytes, synced, successor }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(commits: u64) -> Progress {
        let reached = Reached { ledger: 7, commits, at: Timestamp::from_millis(-1), seq_last: 3 * commits };
        let synced = commits.is_multiple_of(2);
        Progress { reached, life: 2, checkpoint: 9, database_bytes: 4_096, synced, successor: 0 }
    }

    #[test]
    fn the_newest_record_is_read_whatever_was_synced() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("ledger.db");
        assert!(matches!(ProgressFile::open(&database), Err(Unreadable::Absent)));
        let mut file = ProgressFile::create(&database, progress(0)).unwrap();
        for commits in 1..20 {
            file.note(progress(commits)).unwrap();
            if commits.is_multiple_of(3) {
                file.sync().unwrap();
            }
            assert_eq!(*ProgressFile::open(&database).unwrap().last(), progress(commits));
        }
        drop(file);
        let mut again = ProgressFile::open(&database).unwrap();
        again.note(progress(20)).unwrap();
        assert_eq!(*ProgressFile::open(&database).unwrap().last(), progress(20));
    }

    #[test]
    fn every_flipped_bit_costs_one_copy_and_a_slot_without_any_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("ledger.db");
        let mut file = ProgressFile::create(&database, progress(0)).unwrap();
        file.note(progress(1)).unwrap();
        let path = beside(&database, SUFFIX);
        let sound = fs::read(&path).unwrap();
        for slot in [0, usize::try_from(SLOT_BYTES).unwrap()] {
            let rest = progress(if sound[slot..][16] > sound[4_096 - slot..][16] { 0 } else { 1 });
            for at in 0..RECORD_BYTES {
                let mut bytes = sound.clone();
                bytes[slot + at] ^= 1 << (at % 8);
                fs::write(&path, &bytes).unwrap();
                assert_eq!(*ProgressFile::open(&database).unwrap().last(), progress(1), "byte {at}");
                bytes[slot + SECOND_COPY + at] ^= 1;
                fs::write(&path, &bytes).unwrap();
                let found = ProgressFile::open(&database).expect_err("a slot is damaged");
                let Unreadable::Damaged { rest: Some(found), .. } = found else {
                    panic!("byte {at}: {found:?}")
                };
                assert_eq!(*found, rest, "byte {at}");
            }
        }
        for length in [0, 103, 4_095, 4_096, 8_191] {
            fs::write(&path, &sound[..length]).unwrap();
            assert!(
                matches!(ProgressFile::open(&database), Err(Unreadable::Damaged { .. })),
                "{length} bytes"
            );
        }
    }

    #[test]
    fn a_file_with_one_copy_of_each_record_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("ledger.db");
        let mut file = ProgressFile::create(&database, progress(0)).unwrap();
        file.note(progress(1)).unwrap();
        let path = beside(&database, SUFFIX);
        let mut bytes = fs::read(&path).unwrap();
        bytes[SECOND_COPY..4_096].fill(0);
        bytes[4_096 + SECOND_COPY..].fill(0);
        fs::write(&path, &bytes).unwrap();
        assert_eq!(*ProgressFile::open(&database).unwrap().last(), progress(1));
    }
}

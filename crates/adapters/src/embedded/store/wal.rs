//! SQLite ends a WAL at the first frame whose checksum is wrong, and silently drops what follows. After a
//! crash that is right: the last commit was never acknowledged. In the middle of the log it is damage, and
//! what follows was acknowledged.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

use super::{StoreError, beside};

/// Behind the name of the database.
pub(super) const SUFFIX: &str = "-wal";

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// Of `user_version` in the first page.
const CHECKPOINT_AT: usize = 60;

/// Of a sound header.
struct Header {
    page_bytes: usize,
    salts: [u8; 8],
    sum: Sum,
}

/// What the WAL holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// The first frame that was damaged before the last commit, if there is one.
    ///
    /// A commit is written only after the one before it was synced. So when a bad frame is followed by the end of
    /// its commit and then by a frame of yet another one, the bad frame had been synced.
    pub(super) damaged: Option<u64>,
    /// The number of the checkpoint in the last committed copy of the database's first page, if there is one.
    pub(super) checkpoint: Option<u32>,
}

pub(super) fn content(database: &Path) -> Result<Content, StoreError> {
    let path = beside(database, SUFFIX);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Content::default()),
        Err(error) => return Err(StoreError::of_file(&path, error)),
    };
    content_of(BufReader::with_capacity(1 << 20, file)).map_err(|error| StoreError::of_file(&path, error))
}

/// How the WAL looks when it does not hold what it should, for people.
pub(super) fn state(database: &Path) -> String {
    let path = beside(database, SUFFIX);
    let name = path.display();
    let Ok(mut file) = File::open(&path) else { return format!("{name} is not there") };
    if file.metadata().is_ok_and(|found| found.len() == 0) {
        return format!("{name} is empty");
    }
    match header(&mut file) {
        Ok(Some(_)) => format!("{name} ends early, or is an older one"),
        Ok(None) => format!("the header of {name} is damaged"),
        Err(error) => format!("{name} cannot be read: {error}"),
    }
}

fn header(wal: &mut impl Read) -> std::io::Result<Option<Header>> {
    let mut header = [0; HEADER_BYTES];
    if !read_whole(wal, &mut header)? {
        return Ok(None);
    }
    let big_endian = match word(&header, 0) {
        0x377f_0682 => false,
        0x377f_0683 => true,
        _ => return Ok(None),
    };
    let mut sum = Sum { big_endian, a: 0, b: 0 };
    sum.add(&header[..24]);
    let sound = (sum.a, sum.b) == (word(&header, 24), word(&header, 28));
    let page_bytes = word(&header, 8) as usize;
    Ok(sound.then(|| Header { page_bytes, salts: array(&header, 16), sum }))
}

fn content_of(mut wal: impl Read) -> std::io::Result<Content> {
    let mut content = Content::default();
    // A header that was never synced is no damage; whether it had been, the count of commits tells.
    let Some(Header { page_bytes, salts, mut sum }) = header(&mut wal)? else { return Ok(content) };
    let mut frame = vec![0; FRAME_HEADER_BYTES + page_bytes];
    let (mut number, mut bad, mut bad_ended) = (0, None, false);
    let mut uncommitted = None;
    while read_whole(&mut wal, &mut frame)? {
        number += 1;
        let of_this_log = array::<8>(&frame, 8) == salts;
        if bad.is_none() {
            sum.add(&frame[..8]);
            sum.add(&frame[FRAME_HEADER_BYTES..]);
            if of_this_log && (sum.a, sum.b) == (word(&frame, 16), word(&frame, 20)) {
                if word(&frame, 0) == 1 && page_bytes > CHECKPOINT_AT + 4 {
                    uncommitted = Some(word(&frame, FRAME_HEADER_BYTES + CHECKPOINT_AT));
                }
                if word(&frame, 4) != 0 {
                    content.checkpoint = uncommitted.or(content.checkpoint);
                }
                continue;
            }
            bad = Some(number);
        } else if of_this_log && bad_ended {
            content.damaged = bad;
            return Ok(content);
        }
        bad_ended |= of_this_log && word(&frame, 4) != 0;
    }
    Ok(content)
}

/// False at a clean or torn end.
fn read_whole(from: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<bool> {
    match from.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(bytes, at))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

/// The WAL's running checksum, as its file format describes it.
struct Sum {
    big_endian: bool,
    a: u32,
    b: u32,
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        for pair in bytes.chunks_exact(8) {
            let (x, y) = (self.word(&pair[..4]), self.word(&pair[4..]));
            self.a = self.a.wrapping_add(x).wrapping_add(self.b);
            self.b = self.b.wrapping_add(y).wrapping_add(self.a);
        }
    }

    fn word(&self, bytes: &[u8]) -> u32 {
        let bytes = array(bytes, 0);
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    fn damaged_frame(wal: &[u8]) -> std::io::Result<Option<u64>> {
        content_of(wal).map(|content| content.damaged)
    }

    /// A WAL of several commits, as a crash would leave it.
    fn wal_bytes(dir: &Path) -> Vec<u8> {
        let path = dir.join("t.db");
        let db = Connection::open(&path).unwrap();
        db.pragma_update(None, "journal_mode", "WAL").unwrap();
        db.execute_batch("CREATE TABLE t (x)").unwrap();
        for _ in 0..5 {
            db.execute("INSERT INTO t VALUES (randomblob(9000))", []).unwrap();
        }
        std::fs::read(beside(&path, SUFFIX)).unwrap()
    }

    #[test]
    fn a_sound_log_and_a_torn_end_pass() {
        let dir = tempfile::tempdir().unwrap();
        let sound = wal_bytes(dir.path());
        assert_eq!(damaged_frame(&sound[..]).unwrap(), None);
        for cut in [1, 100, 5_000] {
            assert_eq!(damaged_frame(&sound[..sound.len() - cut]).unwrap(), None);
        }
        let mut torn = sound.clone();
        let last_page = sound.len() - 2_000;
        torn[last_page] ^= 1;
        assert_eq!(damaged_frame(&torn[..]).unwrap(), None, "the last commit was never acknowledged");
    }

    #[test]
    fn damage_before_the_last_commit_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = wal_bytes(dir.path());
        bytes[HEADER_BYTES + FRAME_HEADER_BYTES + 77] ^= 1;
        assert_eq!(damaged_frame(&bytes[..]).unwrap(), Some(1));
    }

    #[test]
    fn the_number_of_a_checkpoint_counts_when_it_is_committed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.db");
        let db = Connection::open(&path).unwrap();
        db.pragma_update(None, "journal_mode", "WAL").unwrap();
        let wal = || std::fs::read(beside(&path, SUFFIX)).unwrap();
        for number in [7, 8] {
            db.pragma_update(None, "user_version", number).unwrap();
            assert_eq!(content_of(&wal()[..]).unwrap().checkpoint, Some(number));
        }
        let bytes = wal();
        assert_eq!(content_of(&bytes[..bytes.len() - 1]).unwrap().checkpoint, Some(7), "torn");
    }
}

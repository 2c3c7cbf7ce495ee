//! The run of a block: pieces of entries by hash, each as large as a page holds, and a head that says which piece has which
//! hashes. A look-up reads the head and, as a rule, one piece.

use rusqlite::{Connection, OptionalExtension, params};
use tidegate_domain::Timestamp;

use super::super::as_i64;
use super::super::gaps::is_damage;
use super::{ANY, BLOCK, Entry, Gathered, Times};

pub(in crate::embedded::store) const TABLE: &str = "
    -- Recipients and users of the messages from block × 65536 on, hashed. id: block << 16 | piece; piece 0 is the head.
    -- Each begins with its checksum.
    CREATE TABLE party_block (
        id INTEGER PRIMARY KEY,
        entries BLOB NOT NULL
    ) STRICT;
";

/// Entries of a piece.
const PIECE: usize = if cfg!(test) { 5 } else { 670 };
const ENTRY_BYTES: usize = 6;
const SUM_BYTES: usize = 4;

/// What a run holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) times: Times,
    /// The last hash of each piece.
    lasts: Vec<u32>,
}

/// It is not there, or not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unreadable;

/// Takes the place of a run that was there. Of a block without messages there is none.
pub(super) fn write(db: &Connection, gathered: &Gathered) -> rusqlite::Result<()> {
    let Gathered { block, times, .. } = *gathered;
    remove(db, block, block + 1)?;
    if gathered.seq_last == 0 {
        return Ok(());
    }
    let mut entries = gathered.entries.clone();
    entries.sort_unstable();
    let pieces = || entries.chunks(PIECE);
    let lasts = pieces().filter_map(|piece| Some(piece.last()?.hash().to_be_bytes()));
    let mut head: Vec<u8> =
        [times.first, times.last].iter().flat_map(|at| at.millis().to_be_bytes()).collect();
    head.extend(lasts.flatten());
    let mut insert = db.prepare_cached("INSERT INTO party_block (id, entries) VALUES (?1, ?2)")?;
    insert.execute(params![id(block, 0), summed(id(block, 0), &head)])?;
    for (number, piece) in pieces().enumerate() {
        let id = id(block, number + 1);
        let mut bytes = Vec::with_capacity(piece.len() * ENTRY_BYTES);
        for Entry(entry) in piece {
            let [_, _, entry @ ..] = entry.to_be_bytes();
            bytes.extend_from_slice(&entry);
        }
        insert.execute(params![id, summed(id, &bytes)])?;
    }
    Ok(())
}

/// Forgets the runs of blocks.
pub(super) fn remove(db: &Connection, from: u64, until: u64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM party_block WHERE id >= ?1 AND id < ?2")?
        .execute([id(from, 0), id(until, 0)])?;
    Ok(())
}

pub(super) fn head(db: &Connection, block: u64) -> rusqlite::Result<Option<Result<Head, Unreadable>>> {
    let read = |bytes: &[u8]| {
        let (times, lasts) = bytes.split_at_checked(16)?;
        let (first, last) = times.split_at_checked(8)?;
        let time = |bytes: &[u8]| Some(Timestamp::from_millis(i64::from_be_bytes(bytes.try_into().ok()?)));
        let (lasts, rest) = lasts.as_chunks::<4>();
        let times = Times { first: time(first)?, last: time(last)? };
        rest.is_empty()
            .then(|| Head { times, lasts: lasts.iter().map(|last| u32::from_be_bytes(*last)).collect() })
    };
    piece(db, id(block, 0), |bytes| read(bytes).ok_or(Unreadable))
}

impl Head {
    /// Whether the run knows of damaged messages.
    pub(super) fn has_damaged(&self) -> bool {
        self.lasts.last() == Some(&ANY)
    }

    /// Adds the numbers of messages with such a hash, ascending.
    pub(super) fn seqs(
        &self,
        db: &Connection,
        block: u64,
        hash: u32,
        seqs: &mut Vec<u64>,
    ) -> rusqlite::Result<Result<(), Unreadable>> {
        let first = self.lasts.partition_point(|last| *last < hash);
        for (number, last) in self.lasts.iter().enumerate().skip(first) {
            let read = |bytes: &[u8]| {
                let (entries, rest) = bytes.as_chunks::<ENTRY_BYTES>();
                let of = |bytes: &[u8; ENTRY_BYTES]| {
                    let [a, b, c, d, e, f] = *bytes;
                    Entry(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
                };
                let from = entries.partition_point(|bytes| of(bytes).hash() < hash);
                let found = entries.iter().skip(from).map(of).take_while(|entry| entry.hash() == hash);
                seqs.extend(found.map(|entry| block * BLOCK + entry.place()));
                if rest.is_empty() { Ok(()) } else { Err(Unreadable) }
            };
            match piece(db, id(block, number + 1), read)? {
                Some(Ok(())) => {}
                Some(Err(_)) | None => return Ok(Err(Unreadable)),
            }
            // Many messages of one party go on in the next piece.
            if *last > hash {
                break;
            }
        }
        Ok(Ok(()))
    }
}

/// Reads what stands behind the checksum, if that is right.
fn piece<T>(
    db: &Connection,
    id: i64,
    read: impl FnOnce(&[u8]) -> Result<T, Unreadable>,
) -> rusqlite::Result<Option<Result<T, Unreadable>>> {
    let found = db
        .prepare_cached("SELECT entries FROM party_block WHERE id = ?1")?
        .query_row([id], |row| {
            let stored = row.get_ref(0)?.as_blob()?.split_at_checked(SUM_BYTES);
            let sound = stored.filter(|(found, bytes)| *found == sum(id, bytes));
            Ok(sound.ok_or(Unreadable).and_then(|(_, bytes)| read(bytes)))
        })
        .optional();
    match found {
        Err(error) if is_damage(&error) => Ok(Some(Err(Unreadable))),
        found => found,
    }
}

fn summed(id: i64, bytes: &[u8]) -> Vec<u8> {
    [&sum(id, bytes)[..], bytes].concat()
}

fn sum(id: i64, bytes: &[u8]) -> [u8; SUM_BYTES] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&id.to_be_bytes());
    hasher.update(bytes);
    hasher.finalize().to_be_bytes()
}

fn id(block: u64, number: usize) -> i64 {
    as_i64(block << 16 | number as u64)
}

//! Look-ups by recipient or user.

use rusqlite::{Connection, OptionalExtension};
use tidegate_domain::Filter;

use super::super::as_i64;
use super::super::gaps::is_damage;
use super::run::{self, Head, Unreadable};
use super::upkeep::gather;
use super::{ANY, BLOCK, Parties, hash};

/// Messages that may concern the party that a filter names.
#[derive(Debug)]
pub(in crate::embedded::store) struct Candidates {
    hash: u32,
    /// The open block, as it was before the database was read: the runs of all earlier blocks are there.
    block: u64,
    open: Vec<u64>,
}

impl Candidates {
    /// What is in memory. To be called before the transaction begins that reads the rest; later messages are not found.
    pub(in crate::embedded::store) fn begin(parties: &Parties, filter: &Filter) -> Option<Self> {
        let recipient = filter.recipient.as_ref().map(|recipient| recipient.as_str());
        let hash = hash(recipient.or(filter.user.as_ref().map(|user| user.as_str()))?);
        // The writer needn't wait while the copy is searched.
        let open = parties.lock().clone();
        Some(Self { hash, block: open.block, open: open.seqs(hash) })
    }

    /// The first ones after that number, ascending, at most `max`. The second is how far it looked, unless that is all.
    pub(in crate::embedded::store) fn seqs(
        &self,
        db: &Connection,
        filter: &Filter,
        after: i64,
        max: usize,
    ) -> rusqlite::Result<(Vec<u64>, Option<u64>)> {
        let first = u64::try_from(after.saturating_add(1)).unwrap_or(0);
        let mut seqs = Vec::new();
        let mut block = first / BLOCK;
        while block < self.block && seqs.len() <= max {
            let found = seqs.len();
            let read = match run::head(db, block)? {
                Some(Ok(head)) if !head.times.overlap(filter.from, filter.to) => Ok(()),
                Some(Ok(head)) => self.search(db, block, &head, &mut seqs)?,
                Some(Err(unreadable)) => Err(unreadable),
                None => match next_block(db, block) {
                    Err(error) if is_damage(&error) => Err(Unreadable),
                    next => match next? {
                        Some(next) if next == block => Err(Unreadable),
                        next => {
                            block = next.unwrap_or(self.block);
                            continue;
                        }
                    },
                },
            };
            if read.is_err() {
                tracing::error!(block, "a summary of recipients is damaged; its messages are read instead");
                seqs.truncate(found);
                self.scan(db, block, &mut seqs)?;
            }
            if block == first / BLOCK {
                seqs.retain(|seq| *seq >= first);
            }
            block += 1;
        }
        seqs.extend(self.open.iter().filter(|seq| **seq >= first));
        // Some of them may be gone, so that only this tells whether there are more.
        let is_cut = seqs.len() > max;
        seqs.truncate(max);
        let looked_to = seqs.last().copied().filter(|_| is_cut);
        Ok((seqs, looked_to))
    }

    fn search(
        &self,
        db: &Connection,
        block: u64,
        head: &Head,
        seqs: &mut Vec<u64>,
    ) -> rusqlite::Result<Result<(), Unreadable>> {
        let found = seqs.len();
        let mut read = head.seqs(db, block, self.hash, seqs)?;
        if read.is_ok() && head.has_damaged() {
            read = head.seqs(db, block, ANY, seqs)?;
            sort_from(seqs, found);
        }
        Ok(read)
    }

    /// Reads all messages of a block.
    fn scan(&self, db: &Connection, block: u64, seqs: &mut Vec<u64>) -> rusqlite::Result<()> {
        let found = seqs.len();
        let entries = gather(db, block)?.entries.into_iter();
        let wanted = entries.filter(|entry| [self.hash, ANY].contains(&entry.hash()));
        seqs.extend(wanted.map(|entry| block * BLOCK + entry.place()));
        sort_from(seqs, found);
        Ok(())
    }
}

fn sort_from(seqs: &mut Vec<u64>, from: usize) {
    let mut found = seqs.split_off(from);
    found.sort_unstable();
    found.dedup();
    seqs.append(&mut found);
}

/// The first block from there on that has messages.
pub(super) fn next_block(db: &Connection, block: u64) -> rusqlite::Result<Option<u64>> {
    let first: Option<u64> = db
        .prepare_cached("SELECT seq FROM message WHERE seq >= ?1 ORDER BY seq LIMIT 1")?
        .query_row([as_i64(block * BLOCK)], |row| row.get(0))
        .optional()?;
    Ok(first.map(|seq| seq / BLOCK))
}

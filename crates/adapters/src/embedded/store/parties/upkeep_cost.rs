use std::path::Path;

use bytes::Bytes;
use rusqlite::Connection;
use tidegate_domain::{Headers, Lane, Recipient, Timestamp};

use super::super::super::rows::MessageRow;
use super::{BLOCK, Parties, TABLE};

/// For the bench: what commits of messages do for look-ups by recipient, without the rest of these commits. So the share
/// of look-ups in the time of an admission is measured, not the difference of two large numbers.
#[derive(Debug)]
pub struct PartyUpkeep {
    db: Connection,
    parties: Parties,
    commits: Vec<Vec<MessageRow>>,
    commits_per_block: usize,
}

impl PartyUpkeep {
    /// Makes commits with so many messages each, every message with a recipient of its own.
    pub fn new(database: &Path, commits: u64, messages_each: u64) -> rusqlite::Result<Self> {
        let db = Connection::open(database)?;
        db.pragma_update(None, "journal_mode", "wal")?;
        db.pragma_update(None, "synchronous", "full")?;
        db.execute_batch(TABLE)?;
        let commit =
            |number: u64| (0..messages_each).map(move |n| row(number * messages_each + n + 1)).collect();
        let commits = (0..commits).map(commit).collect();
        let commits_per_block = usize::try_from(BLOCK / messages_each.max(1)).unwrap_or(usize::MAX).max(1);
        Ok(Self { db, parties: Parties::default(), commits, commits_per_block })
    }

    /// With one transaction for each block, for that block's run: all other commits write nothing for look-ups, and have
    /// their transactions anyway.
    pub fn run(self) -> rusqlite::Result<()> {
        for commits in self.commits.chunks(self.commits_per_block) {
            let transaction = self.db.unchecked_transaction()?;
            for messages in commits {
                let step = Parties::step(messages);
                self.parties.write(&self.db, &step)?;
                self.parties.apply(step);
            }
            transaction.commit()?;
        }
        Ok(())
    }
}

fn row(seq: u64) -> MessageRow {
    let at = Timestamp::from_millis(0);
    MessageRow {
        seq,
        at,
        queue: 1,
        lane: Lane::Normal,
        due: at,
        recipient: Recipient::new(&format!("recipient {seq}")).ok(),
        charge: None,
        idempotency: None,
        expires: None,
        headers: Headers::default(),
        ack_required: false,
        body: Bytes::new(),
    }
}

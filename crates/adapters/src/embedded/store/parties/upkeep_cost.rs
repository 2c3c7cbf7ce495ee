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
    seq_last: u64,
}

/// The rows of one commit's messages.
#[derive(Debug)]
pub struct UpkeepRows(Vec<MessageRow>);

impl PartyUpkeep {
    pub fn new(database: &Path) -> rusqlite::Result<Self> {
        let db = Connection::open(database)?;
        db.pragma_update(None, "journal_mode", "wal")?;
        db.pragma_update(None, "synchronous", "full")?;
        db.execute_batch(TABLE)?;
        Ok(Self { db, parties: Parties::default(), seq_last: 0 })
    }

    /// The next commit's messages, every one with a recipient of its own. Not part of the cost: a ledger has the rows anyway.
    pub fn rows(&mut self, messages: u64) -> UpkeepRows {
        let first = self.seq_last + 1;
        self.seq_last += messages;
        UpkeepRows((first..=self.seq_last).map(row).collect())
    }

    /// What one commit does. Only the commits that end a block write something, and have a transaction here; a ledger's
    /// commit has one anyway.
    pub fn keep(&mut self, rows: &UpkeepRows) -> rusqlite::Result<()> {
        let step = Parties::step(&rows.0);
        if rows.0.last().is_some_and(|last| last.seq / BLOCK > self.parties.block()) {
            let transaction = self.db.unchecked_transaction()?;
            self.parties.write(&self.db, &step)?;
            transaction.commit()?;
        }
        self.parties.apply(step);
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

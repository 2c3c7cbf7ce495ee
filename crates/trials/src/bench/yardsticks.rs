//! What the embedded ledger is measured against: the least that is durable, and what people write first.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use rusqlite::{Connection, Row, params};

/// An append-only file with one fsync per group and nothing else: no index, no claims, no reading. Three
/// appends per message, as admit, claim and settle would be.
#[derive(Debug)]
pub struct BareLog {
    file: File,
    buffer: Vec<u8>,
    next: u64,
}

impl BareLog {
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        Ok(Self { file: File::create_new(path)?, buffer: Vec::new(), next: 0 })
    }

    pub fn cycle(&mut self, count: usize, body: &[u8]) -> anyhow::Result<()> {
        let first = self.next;
        self.next += count as u64;
        for (kind, body) in [(1u8, body), (2, &[]), (3, &[])] {
            self.buffer.clear();
            for seq in first..self.next {
                let length = u32::try_from(body.len())?;
                self.buffer.extend_from_slice(&length.to_le_bytes());
                self.buffer.push(kind);
                self.buffer.extend_from_slice(&seq.to_le_bytes());
                self.buffer.extend_from_slice(body);
                let sum = crc32(&self.buffer[self.buffer.len() - body.len()..]);
                self.buffer.extend_from_slice(&sum.to_le_bytes());
            }
            self.file.write_all(&self.buffer)?;
            self.file.sync_data()?;
        }
        Ok(())
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// A queue as a table with an index on state and due time, each step of the cycle one durable transaction over
/// the whole batch.
#[derive(Debug)]
pub struct QueueTable {
    db: Connection,
    due: i64,
}

impl QueueTable {
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let db = Connection::open(path)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "FULL")?;
        db.execute_batch(
            "CREATE TABLE queue (id INTEGER PRIMARY KEY, state INTEGER NOT NULL, due INTEGER NOT NULL,
                 recipient TEXT NOT NULL, body BLOB NOT NULL);
             CREATE INDEX queue_by_state_and_due ON queue (state, due);",
        )?;
        Ok(Self { db, due: 0 })
    }

    pub fn cycle(&mut self, count: usize, body: &[u8]) -> anyhow::Result<()> {
        let tx = self.db.transaction()?;
        {
            let mut insert =
                tx.prepare_cached("INSERT INTO queue (state, due, recipient, body) VALUES (0, ?1, ?2, ?3)")?;
            for _ in 0..count {
                self.due += 1;
                insert.execute(params![self.due, format!("recipient {}", self.due), body])?;
            }
        }
        tx.commit()?;

        let tx = self.db.transaction()?;
        let claimed: Vec<(i64, String, Vec<u8>)> = {
            let mut claim = tx.prepare_cached(
                "UPDATE queue SET state = 1 WHERE id IN
                     (SELECT id FROM queue WHERE state = 0 AND due <= ?1 ORDER BY due LIMIT ?2)
                 RETURNING id, recipient, body",
            )?;
            let message = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
            let rows = claim.query_map(params![self.due, count], message)?;
            rows.collect::<Result<_, _>>()?
        };
        tx.commit()?;
        anyhow::ensure!(claimed.len() == count, "claimed {} instead of {count}", claimed.len());
        let same = claimed.iter().all(|(_, recipient, stored)| !recipient.is_empty() && stored == body);
        anyhow::ensure!(same, "another message than was admitted");

        let tx = self.db.transaction()?;
        {
            let mut settle = tx.prepare_cached("UPDATE queue SET state = 2 WHERE id = ?1")?;
            for (id, _, _) in claimed {
                settle.execute([id])?;
            }
        }
        Ok(tx.commit()?)
    }
}

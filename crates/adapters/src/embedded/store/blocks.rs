//! Which queues have messages among which sequence numbers. An index with a row per message would cost as much as
//! the messages themselves.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};

use super::super::rows::MessageRow;
use super::{as_i64, checksum};

/// Sequence numbers of one block.
pub(super) const BLOCK: i64 = 256;

/// Messages after ?1 in the blocks (of ?3) of queue ?2, those of other queues between them; in order.
pub(super) const MESSAGES_OF_QUEUE: &str = "queue_block
     CROSS JOIN message ON message.seq BETWEEN max(block * ?3, ?1 + 1) AND block * ?3 + ?3 - 1
     LEFT JOIN outcome ON outcome.seq = message.seq
     WHERE queue_block.queue = ?2 AND block >= ?1 / ?3 ORDER BY block, message.seq";

pub(super) fn write(db: &Connection, messages: &[MessageRow]) -> rusqlite::Result<()> {
    let mut blocks: Vec<_> =
        messages.iter().map(|message| (message.queue, as_i64(message.seq) / BLOCK)).collect();
    blocks.dedup();
    blocks.sort_unstable();
    blocks.dedup();
    if blocks.is_empty() {
        return Ok(());
    }
    let mut insert =
        db.prepare_cached("INSERT OR IGNORE INTO queue_block (queue, block, checksum) VALUES (?1, ?2, ?3)")?;
    for (queue, block) in blocks {
        insert.execute(params![queue, block, checksum::of_columns(&[queue.into(), block], &[])])?;
    }
    Ok(())
}

/// Forgets blocks among these sequence numbers that hold nothing any more. Returns the queues that lost one.
pub(super) fn remove_empty(db: &Connection, from: i64, to: i64) -> rusqlite::Result<BTreeSet<u32>> {
    let mut delete = db.prepare_cached(
        "DELETE FROM queue_block WHERE (queue, block) IN (
             SELECT queue, block FROM queue_block INDEXED BY queue_block_age
             WHERE block BETWEEN ?1 AND ?2 AND NOT EXISTS (
                 SELECT 1 FROM message
                 WHERE seq BETWEEN block * ?3 AND block * ?3 + ?3 - 1 AND message.queue = queue_block.queue))
         RETURNING queue",
    )?;
    delete.query_map([from / BLOCK, to / BLOCK, BLOCK], |row| row.get(0))?.collect()
}

#[cfg(test)]
mod tests {
    use super::super::schema;
    use super::*;

    /// Two queues: a few messages are the second's.
    fn database() -> Connection {
        let db = Connection::open_in_memory().unwrap();
        schema::ensure(&db, &super::super::Progress::default()).unwrap();
        db.execute_batch(
            "INSERT INTO queue VALUES (0, 'a', 0, 1, 0), (1, 'b', 0, 1, 0);
             WITH RECURSIVE n (seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < 1000)
             INSERT INTO message (seq, at, queue, lane, checksum, ack, body)
                 SELECT seq, 0, seq IN (3, 255, 256, 999), 1, 0, 0, x'' FROM n;
             INSERT INTO queue_block SELECT DISTINCT queue, seq / 256, 0 FROM message;",
        )
        .unwrap();
        db
    }

    fn seqs(db: &Connection, after: i64, queue: i64) -> Vec<i64> {
        let sql = format!("SELECT message.seq, message.queue FROM {MESSAGES_OF_QUEUE}");
        let mut select = db.prepare(&sql).unwrap();
        let rows = select
            .query_map([after, queue, BLOCK], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?)))
            .unwrap()
            .map(Result::unwrap);
        rows.filter(|(_, of)| *of == queue).map(|(seq, _)| seq).collect()
    }

    fn blocks(db: &Connection) -> Vec<(i64, i64)> {
        let mut select = db.prepare("SELECT queue, block FROM queue_block ORDER BY 1, 2").unwrap();
        let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.map(Result::unwrap).collect()
    }

    #[test]
    fn a_queue_is_found_among_others_in_order() {
        let db = database();
        assert_eq!(seqs(&db, -1, 1), [3, 255, 256, 999]);
        assert_eq!(seqs(&db, 255, 1), [256, 999]);
        assert!(seqs(&db, 999, 1).is_empty());
        assert_eq!(seqs(&db, 0, 0).len(), 996);
    }

    #[test]
    fn blocks_go_with_their_last_message() {
        let db = database();
        db.execute_batch("DELETE FROM message WHERE seq < 700 AND seq <> 256").unwrap();
        remove_empty(&db, 0, 699).unwrap();
        assert_eq!(blocks(&db), [(0, 2), (0, 3), (1, 1), (1, 3)]);
        assert_eq!(seqs(&db, -1, 1), [256, 999]);
    }
}

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _};

use super::super::{blocks, gaps};

/// Where a list's rows come from, by ascending numbers.
pub(super) enum Source {
    /// Messages that may concern a party.
    Candidates(Vec<u64>),
    Dead,
    /// Messages of a queue's blocks, those of other queues between them.
    Queue(i64),
    All,
}

impl Source {
    /// What stands behind FROM for rows after that number, and its parameters.
    pub(super) fn query(&self, after: i64) -> (&'static str, Vec<Value>) {
        match self {
            Self::Candidates(seqs) => (
                "json_each(?1) AS candidate CROSS JOIN message ON message.seq = candidate.value
                 LEFT JOIN outcome ON outcome.seq = message.seq WHERE candidate.value > ?2",
                vec![Value::Text(format!("{seqs:?}")), after.into()],
            ),
            Self::Dead => (
                "outcome INDEXED BY dead LEFT JOIN message ON message.seq = outcome.seq
                 WHERE status = 2 AND outcome.seq > ?1 ORDER BY outcome.seq",
                vec![after.into()],
            ),
            Self::Queue(queue) => {
                (blocks::MESSAGES_OF_QUEUE, vec![after.into(), (*queue).into(), blocks::BLOCK.into()])
            }
            Self::All => (
                "message LEFT JOIN outcome ON outcome.seq = message.seq
                 WHERE message.seq > ?1 ORDER BY message.seq",
                vec![after.into()],
            ),
        }
    }

    /// The numbers that can't be read, when the first row after that one meets a damaged page: of one message, or of all that
    /// its page held. None when there is nothing more.
    pub(super) fn unreadable_after(
        &self,
        db: &Connection,
        after: i64,
    ) -> rusqlite::Result<Option<(i64, i64)>> {
        let next = after.saturating_add(1);
        match self {
            Self::Candidates(seqs) => {
                let next = seqs.iter().filter_map(|seq| i64::try_from(*seq).ok()).find(|seq| *seq > after);
                Ok(next.map(|seq| (seq, seq)))
            }
            Self::Dead => {
                let sql = "SELECT seq FROM outcome INDEXED BY dead WHERE status = 2 AND seq > ?1 ORDER BY seq LIMIT 1";
                let next: Option<i64> =
                    db.prepare_cached(sql)?.query_row([after], |row| row.get(0)).optional()?;
                Ok(next.map(|seq| (seq, seq)))
            }
            Self::Queue(queue) => {
                let sql = "SELECT block FROM queue_block WHERE queue = ?1 AND block >= ?2 ORDER BY block";
                let mut select = db.prepare_cached(sql)?;
                let mut rows = select.query([*queue, next / blocks::BLOCK])?;
                while let Some(row) = rows.next()? {
                    let first = row.get::<_, i64>(0)? * blocks::BLOCK;
                    let found = unreadable_among(db, next.max(first), first + blocks::BLOCK - 1)?;
                    if found.is_some() {
                        return Ok(found);
                    }
                }
                Ok(None)
            }
            Self::All => {
                let last = db.query_row("SELECT seq_last FROM totals", [], |row| row.get(0))?;
                unreadable_among(db, next, last)
            }
        }
    }
}

fn unreadable_among(db: &Connection, from: i64, to: i64) -> rusqlite::Result<Option<(i64, i64)>> {
    match gaps::first(db, from) {
        Ok(found) => Ok(found.filter(|seq| *seq <= to).map(|seq| (seq, seq))),
        Err(error) if gaps::is_damage(&error) => Ok(Some((from, gaps::behind(db, from, to)? - 1))),
        Err(error) => Err(error),
    }
}

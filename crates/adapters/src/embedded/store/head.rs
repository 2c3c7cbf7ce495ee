//! The one row that every commit writes: the totals, and how far the ledger has got.

use rusqlite::{Connection, OptionalExtension as _, params};
use tidegate_domain::Timestamp;

use super::super::rows::Totals;
use super::progress::Reached;
use super::read::nonsense;
use super::{as_i64, checksum};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::embedded) struct Head {
    pub(in crate::embedded) totals: Totals,
    pub(in crate::embedded) reached: Reached,
}

pub(super) fn write(db: &Connection, head: &Head) -> rusqlite::Result<()> {
    let Totals { admitted, delivered, dead, expired, deleted } = head.totals;
    let Reached { ledger, commits, at, seq_last } = head.reached;
    db.prepare_cached(
        "INSERT OR REPLACE INTO totals (id, admitted, delivered, dead, expired, deleted, ledger, commits, at, seq_last,
         checksum) VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        as_i64(admitted),
        as_i64(delivered),
        as_i64(dead),
        as_i64(expired),
        as_i64(deleted),
        as_i64(ledger),
        as_i64(commits),
        at.millis(),
        as_i64(seq_last),
        checksum::of_head_row(head),
    ])?;
    Ok(())
}

pub(super) fn read(db: &Connection) -> rusqlite::Result<Head> {
    let sql = "SELECT admitted, delivered, dead, expired, deleted, ledger, commits, at, seq_last, checksum FROM totals
               WHERE id = 1";
    let read = |row: &rusqlite::Row<'_>| {
        let totals = Totals {
            admitted: row.get(0)?,
            delivered: row.get(1)?,
            dead: row.get(2)?,
            expired: row.get(3)?,
            deleted: row.get(4)?,
        };
        let at = Timestamp::from_millis(row.get(7)?);
        let reached = Reached { ledger: row.get(5)?, commits: row.get(6)?, at, seq_last: row.get(8)? };
        let head = Head { totals, reached };
        let sound = checksum::of_head_row(&head) == row.get::<_, i64>(9)?;
        if sound { Ok(head) } else { Err(nonsense(9, "the row of totals does not match its checksum")) }
    };
    let found = db.prepare_cached(sql)?.query_row([], read).optional()?;
    found.ok_or_else(|| nonsense(0, "the table totals has no row"))
}

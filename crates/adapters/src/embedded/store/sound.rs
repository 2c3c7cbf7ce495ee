//! Rows that a start would take at their word: whether they are what was written, and whether they are all there.

use tidegate_domain::Status;

use super::read::{self, OUTCOME};
use super::{Store, StoreError, as_i64, checksum, unsound};

/// A start reads them as a whole, or decides by what is in them. They are small beside the messages, so that SQLite's look
/// at their pages and indexes is cheap: it finds rows that a damaged page or index has lost, which no checksum of a row can.
const TABLES: [&str; 6] = ["meta", "queue", "queue_block", "slot_config", "quota", "totals"];

impl Store {
    pub(in crate::embedded) fn check_rows(&self) -> Result<(), StoreError> {
        for table in TABLES {
            let sql = format!("PRAGMA integrity_check({table})");
            let said: String =
                self.connection.query_row(&sql, [], |row| row.get(0)).map_err(|e| self.error(e))?;
            self.require(said == "ok", &format!("table {table}: {said}"))?;
        }
        self.each("SELECT name, value, checksum FROM meta", [], |row| {
            let (name, value): (String, i64) = (row.get(0)?, row.get(1)?);
            let sound = checksum::of_columns(&[value], &[Some(&name)]) == row.get::<_, i64>(2)?;
            if sound { Ok(true) } else { Err(unsound("meta", &name)) }
        })?;
        self.each("SELECT queue, block, checksum FROM queue_block", [], |row| {
            let (queue, block): (i64, i64) = (row.get(0)?, row.get(1)?);
            let sound = checksum::of_columns(&[queue, block], &[]) == row.get::<_, i64>(2)?;
            if sound { Ok(true) } else { Err(unsound("queue_block", &format!("{queue}, {block}"))) }
        })?;
        self.check_dead()
    }

    /// The index of dead letters names as many as the totals do, and each is one: so it lacks none. Its cost is that of the
    /// dead letters, not of all outcomes.
    fn check_dead(&self) -> Result<(), StoreError> {
        let (mut found, known) = (0, self.head.totals.dead);
        let sql = format!("SELECT {OUTCOME} FROM outcome INDEXED BY dead WHERE status = 2");
        // By the number in the index, which the row that it leads to does not tell.
        let seek = "SELECT 1 FROM outcome INDEXED BY dead WHERE status = 2 AND seq = ?1";
        let mut seek = self.connection.prepare(seek).map_err(|e| self.error(e))?;
        let sound = self.each(&sql, [], |row| {
            found += 1;
            let outcome = read::ended(row)?;
            Ok(outcome.status == Status::Dead && seek.exists([as_i64(outcome.seq)])?)
        })?;
        let otherwise = format!("the index of dead letters has {found} of {known}, or one that is none");
        self.require(sound && found == known, &otherwise)
    }
}

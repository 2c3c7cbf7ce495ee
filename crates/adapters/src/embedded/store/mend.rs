//! Taking damaged rows out of a ledger, so that it can be started: the operator's decision. What is damaged is written down
//! before it is removed.

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Row, params_from_iter};
use tidegate_domain::{MessageId, Status, Timestamp};

use super::super::rows::{OutcomeRow, QueueRow, Totals};
use super::read::{self, ATTEMPT, HEAD, OUTCOME};
use super::slots::{self, SLOT};
use super::{Commit, Store, StoreError, as_i64, checksum, queues, recover};

/// A row that does not match its checksum.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DamagedRow {
    table: &'static str,
    key: Vec<(&'static str, Value)>,
    /// What is known of it, and what its removal means.
    meaning: String,
    /// All of it, as SQL.
    content: String,
}

impl std::fmt::Display for DamagedRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key: Vec<_> = self.key.iter().map(|(name, value)| format!("{name} {}", literal(value))).collect();
        write!(f, "row {} of table {}: {}", key.join(", "), self.table, self.meaning)
    }
}

impl DamagedRow {
    /// For the file of losses: the row with its bytes.
    pub(super) fn whole(&self) -> String {
        format!("{self}; it held {}", self.content)
    }
}

impl Store {
    /// The damaged rows that keep the ledger from being opened, of the tables that are of use without them.
    pub(super) fn damaged_rows(&self) -> Result<Vec<DamagedRow>, StoreError> {
        let live_from = self.mark("live_from")?;
        let mut rows = self.damaged_in(
            "key",
            &["seq"],
            "SELECT seq, at, key, fingerprint, checksum FROM key",
            |row| recover::key_of(row).is_ok(),
            "removed; a repetition under this idempotency key is admitted again",
        )?;
        rows.extend(self.damaged_in(
            "quota",
            &["user"],
            &format!("SELECT {} FROM quota", recover::QUOTA),
            |row| recover::quota_of(row).is_ok_and(|quota| quota.is_some()),
            "removed; the quota has to be set again",
        )?);
        rows.extend(self.damaged_in(
            "slot",
            &["seq"],
            &format!("SELECT {SLOT} FROM slot"),
            |row| slots::slot_of(row).is_ok_and(|slot| slot.is_some()),
            "removed; the event has lost its slot, and the window has room for one more",
        )?);
        rows.extend(self.damaged_in(
            "slot_config",
            &["config", "version"],
            &format!("SELECT {} FROM slot_config", slots::CONFIG),
            |row| slots::require_sound(row).is_ok(),
            "kept as it reads, which may be wrong: put the slot configuration again",
        )?);
        rows.extend(self.damaged_in(
            "attempt",
            &["seq", "number"],
            &format!("SELECT {ATTEMPT} FROM attempt WHERE seq >= {live_from}"),
            |row| read::attempt(row).is_ok(),
            "removed; its message does not count this attempt any more",
        )?);
        // Those that a start reads.
        rows.extend(self.damaged_in(
            "outcome",
            &["seq"],
            &format!("SELECT {OUTCOME} FROM outcome INDEXED BY dead WHERE status = 2"),
            |row| read::ended(row).is_ok_and(|outcome| outcome.status == Status::Dead),
            "its message stays a dead letter; when, why and after how many attempts is gone",
        )?);
        rows.extend(self.damaged_in(
            "queue_block",
            &["queue", "block"],
            "SELECT queue, block, checksum FROM queue_block",
            |row| block_is_sound(row).unwrap_or(false),
            "made anew from the messages; nothing is lost",
        )?);
        rows.extend(self.damaged_in(
            "queue",
            &["id"],
            "SELECT id, name, paused, live, checksum FROM queue",
            |row| recover::queue_of(row).is_ok_and(|queue| queue.is_some()),
            "kept, and paused: see that its name is right before it is resumed",
        )?);
        rows.extend(self.damaged_messages(live_from)?);
        Ok(rows)
    }

    /// Those that a start reads: what waits, and what holds charges that no quota contains yet.
    fn damaged_messages(&self, live_from: u64) -> Result<Vec<DamagedRow>, StoreError> {
        let quota_seq = self.quota_seq()?;
        let sql = format!(
            "SELECT {HEAD} FROM message WHERE seq >= {from} AND (seq > {quota_seq}
             OR NOT EXISTS (SELECT 1 FROM outcome WHERE outcome.seq = message.seq))",
            from = live_from.min(quota_seq + 1),
        );
        let is_sound =
            |row: &Row<'_>| read::head(row).is_ok_and(|(message, sum)| checksum::head_matches(&message, sum));
        let mut rows = self.damaged_in("message", &["seq"], &sql, is_sound, "")?;
        let salt = self.mark("salt")?.try_into().unwrap_or(0);
        for row in &mut rows {
            let select = "SELECT at FROM message WHERE seq = ?1";
            let seq = row.seq();
            let at = self.connection.query_row(select, [as_i64(seq)], |row| row.get(0)).unwrap_or(0);
            let id = MessageId::new(Timestamp::from_millis(at), seq, salt);
            row.meaning = format!("message {id} (if its time is right) is removed, and counted as deleted");
        }
        Ok(rows)
    }

    fn damaged_in(
        &self,
        table: &'static str,
        key: &[&'static str],
        sql: &str,
        is_sound: impl Fn(&Row<'_>) -> bool,
        meaning: &str,
    ) -> Result<Vec<DamagedRow>, StoreError> {
        let mut found = Vec::new();
        self.each(sql, [], |row| {
            if !is_sound(row) {
                let key = key.iter().map(|name| Ok((*name, row.get(*name)?)));
                let key = key.collect::<rusqlite::Result<_>>()?;
                found.push(DamagedRow { table, key, meaning: meaning.to_owned(), content: String::new() });
            }
            Ok(true)
        })?;
        for row in &mut found {
            row.content = self.content(row).map_err(|e| self.error(e))?;
        }
        Ok(found)
    }

    /// All columns of a row, as SQL writes them.
    fn content(&self, row: &DamagedRow) -> rusqlite::Result<String> {
        let select = format!("SELECT * FROM {} WHERE {}", row.table, row.condition());
        let mut select = self.connection.prepare(&select)?;
        let columns = select.column_count();
        let text = |row: &Row<'_>| {
            let values = (0..columns).map(|column| Ok(literal_of(row.get_ref(column)?)));
            Ok(values.collect::<rusqlite::Result<Vec<_>>>()?.join(", "))
        };
        select.query_row(params_from_iter(row.values()), text)
    }

    /// Removes the rows in one commit, if what is left makes sense.
    pub(super) fn remove_rows(
        &mut self,
        rows: &[DamagedRow],
        now: Timestamp,
        check: impl FnOnce(&Self) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let before = self.head.totals;
        self.head.totals = self.totals_without(rows)?;
        let commit = Commit { totals: self.head.totals, ..self.commit_at(now) };
        let removed = self.transact(commit, |store| {
            for row in rows {
                store.remove_row(row).map_err(|e| store.error(e))?;
            }
            check(store)
        });
        removed.inspect_err(|_| self.head.totals = before)
    }

    fn remove_row(&self, row: &DamagedRow) -> rusqlite::Result<()> {
        let db = &self.connection;
        match row.table {
            "queue" => return self.rename_queue(row),
            "slot_config" => return self.keep_config(row),
            "outcome" => return self.keep_dead(row),
            "message" => {
                for table in ["outcome", "attempt", "key"] {
                    db.execute(&format!("DELETE FROM {table} WHERE seq = ?1"), [as_i64(row.seq())])?;
                }
            }
            _ => {}
        }
        let delete = format!("DELETE FROM {} WHERE {}", row.table, row.condition());
        db.execute(&delete, params_from_iter(row.values()))?;
        if row.table == "queue_block" { self.make_blocks() } else { Ok(()) }
    }

    /// Which queues have messages in which blocks is told by the messages.
    fn make_blocks(&self) -> rusqlite::Result<()> {
        let db = &self.connection;
        let mut select = db.prepare("SELECT DISTINCT queue, seq / 256 FROM message")?;
        let blocks = select.query_map([], |row| Ok([row.get(0)?, row.get(1)?]))?;
        let mut insert =
            db.prepare("INSERT OR REPLACE INTO queue_block (queue, block, checksum) VALUES (?1, ?2, ?3)")?;
        for block in blocks {
            let [queue, block]: [i64; 2] = block?;
            insert.execute([queue, block, checksum::of_columns(&[queue, block], &[])])?;
        }
        Ok(())
    }

    /// The slots of a configuration are of no use without all of its versions.
    fn keep_config(&self, row: &DamagedRow) -> rusqlite::Result<()> {
        let db = &self.connection;
        let select = format!("SELECT {} FROM slot_config WHERE {}", slots::CONFIG, row.condition());
        let sum = db.query_row(&select, params_from_iter(row.values()), slots::sum_of_config)?;
        let update = format!("UPDATE slot_config SET checksum = {sum} WHERE {}", row.condition());
        db.execute(&update, params_from_iter(row.values())).map(drop)
    }

    /// The index of dead letters says that it is one.
    fn keep_dead(&self, row: &DamagedRow) -> rusqlite::Result<()> {
        let (seq, at, reason) = (row.seq(), self.head.reached.at, Some("its outcome was damaged".to_owned()));
        let outcome = OutcomeRow { seq, status: Status::Dead, at, attempt: 0, latency_ms: 0, reason };
        let sum = checksum::of_outcome(&outcome);
        self.connection.execute(
            "UPDATE outcome SET status = 2, at = ?2, attempt = 0, latency_ms = 0, reason = ?3, checksum = ?4
             WHERE seq = ?1",
            rusqlite::params![as_i64(seq), at.millis(), outcome.reason, sum],
        )?;
        // What was damaged may be the status.
        self.connection.execute_batch("REINDEX dead")
    }

    /// A queue's messages are of no use without it. Paused, it hands none of them out under a wrong name.
    fn rename_queue(&self, row: &DamagedRow) -> rusqlite::Result<()> {
        let db = &self.connection;
        let id = u32::try_from(row.seq()).map_err(|_| super::unsound("queue", &row.seq()))?;
        let name = queues::name(db, id).ok().flatten();
        let name = name.or_else(|| tidegate_domain::QueueName::new(&format!("damaged-{id}")).ok());
        let name = name.ok_or_else(|| super::unsound("queue", &id))?;
        let mended = QueueRow { id, name, paused: true, live: true };
        db.execute(
            "UPDATE queue SET name = ?2, paused = 1, live = 1, checksum = ?3 WHERE id = ?1",
            rusqlite::params![id, mended.name.as_str(), queues::sum_of_queue(&mended)],
        )?;
        Ok(())
    }

    /// A message that waited counts as deleted from now on, and so does a dead letter.
    fn totals_without(&self, rows: &[DamagedRow]) -> Result<Totals, StoreError> {
        let mut totals = self.head.totals;
        for row in rows.iter().filter(|row| row.table == "message") {
            let outcome = read::outcome(&self.connection, row.seq()).map_err(|e| self.error(e))?;
            match outcome.map(|outcome| outcome.status) {
                None => totals.deleted += 1,
                Some(Status::Dead) => {
                    totals.dead = totals.dead.saturating_sub(1);
                    totals.deleted += 1;
                }
                Some(_) => {}
            }
        }
        Ok(totals)
    }
}

impl DamagedRow {
    fn seq(&self) -> u64 {
        match self.key.first() {
            Some((_, Value::Integer(seq))) => u64::try_from(*seq).unwrap_or(0),
            _ => 0,
        }
    }

    fn condition(&self) -> String {
        let equal = |(n, (name, _)): (usize, &(&str, Value))| format!("{name} IS ?{}", n + 1);
        self.key.iter().enumerate().map(equal).collect::<Vec<_>>().join(" AND ")
    }

    fn values(&self) -> impl Iterator<Item = &Value> {
        self.key.iter().map(|(_, value)| value)
    }
}

fn block_is_sound(row: &Row<'_>) -> rusqlite::Result<bool> {
    let (queue, block): (i64, i64) = (row.get(0)?, row.get(1)?);
    Ok(checksum::of_columns(&[queue, block], &[]) == row.get::<_, i64>(2)?)
}

fn literal(value: &Value) -> String {
    literal_of(value.into())
}

fn literal_of(value: ValueRef<'_>) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match value {
        ValueRef::Null => "NULL".to_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Blob(bytes) => format!("x'{}'", hex(bytes)),
        ValueRef::Text(bytes) => match str::from_utf8(bytes) {
            Ok(text) if !text.contains(char::is_control) => format!("'{}'", text.replace('\'', "''")),
            _ => format!("CAST(x'{}' AS TEXT)", hex(bytes)),
        },
    }
}

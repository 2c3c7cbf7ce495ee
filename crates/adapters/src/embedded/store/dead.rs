//! Dead letters that come back or go for good.

use rusqlite::{Connection, OptionalExtension, params};
use tidegate_domain::{MessageId, Status, Timestamp};

use super::super::book::{Group, Text};
use super::super::rows::{DeadLetter, LateAckRow, Past};
use super::{Store, StoreError, Stub, as_i64, checksum, get_meta, read, set_meta};

pub(super) fn write(store: &Store, group: &Group) -> rusqlite::Result<()> {
    let db = &store.connection;
    for row in &group.requeued {
        let seq = as_i64(row.message.seq);
        db.prepare_cached("DELETE FROM outcome WHERE seq = ?1")?.execute([seq])?;
        // The next start must find it, however old it is.
        if get_meta(db, "live_from")?.is_some_and(|live_from| live_from > seq) {
            set_meta(db, "live_from", seq)?;
        }
        if row.edited {
            let body = row.message.body.as_ref();
            db.prepare_cached("UPDATE message SET body = ?2, checksum = ?3 WHERE seq = ?1")?
                .execute(params![seq, body, checksum::of_message(&row.message)])?;
        }
    }
    let requeued = group.requeued.iter().flat_map(|row| row.last.iter().chain([&row.attempt]));
    store.write_attempts(requeued.chain(group.acked_late.iter().filter_map(|row| row.last.as_ref())))?;
    for LateAckRow { outcome, .. } in &group.acked_late {
        db.prepare_cached("DELETE FROM outcome WHERE seq = ?1")?.execute([as_i64(outcome.seq)])?;
    }
    store.write_outcomes(group.acked_late.iter().map(|row| &row.outcome))?;
    for seq in &group.dead_deleted {
        // Its number is not given out again: its key may outlive it, and so may its slot.
        if get_meta(db, "seq_last")?.is_some_and(|seq_last| seq_last < as_i64(*seq)) {
            set_meta(db, "seq_last", as_i64(*seq))?;
        }
        remove(db, *seq)?;
    }
    Ok(())
}

pub(super) fn remove(db: &Connection, seq: u64) -> rusqlite::Result<()> {
    for table in ["message", "attempt", "outcome"] {
        db.prepare_cached(&format!("DELETE FROM {table} WHERE seq = ?1"))?.execute([as_i64(seq)])?;
    }
    Ok(())
}

impl Store {
    /// A dead letter as of the last commit; `None` when it is none.
    pub(in crate::embedded) fn dead(
        &self,
        id: MessageId,
        salt: u32,
    ) -> Result<Option<DeadLetter>, StoreError> {
        read::dead(&self.connection, id, salt).map_err(|error| self.error(error).of_message(id.seq()))
    }

    /// As of the last commit.
    pub(in crate::embedded) fn past(&self, seq: u64) -> Result<Past, StoreError> {
        read::past(&self.connection, seq).map_err(|error| self.error(error).of_message(seq))
    }

    /// A message that is about to be handed out for good.
    pub(in crate::embedded) fn text(&self, seq: u64) -> Text {
        match read::messages(&self.connection, &[seq]).map(|mut found| found.pop()) {
            Ok(Some(stored)) if stored.head_sound && stored.body_sound => Text::Sound(stored.row),
            Ok(Some(stored)) if stored.head_sound => {
                tracing::error!(seq, "a message is damaged on disk; it becomes a dead letter");
                Text::Damaged
            }
            Ok(stored) => {
                let what = if stored.is_some() { "does not match its checksum" } else { "has no row" };
                let error = StoreError::damaged(&self.path, format!("message {seq} {what}"));
                Text::Unreadable(error.on_reading())
            }
            Err(error) => Text::Unreadable(self.error(error).of_message(seq).on_reading()),
        }
    }

    /// As of the last commit.
    pub(in crate::embedded) fn stub(&self, seq: u64) -> Result<Option<Stub>, StoreError> {
        let read = |row: &rusqlite::Row<'_>| {
            Ok(Stub { at: Timestamp::from_millis(row.get(0)?), ack_required: row.get(1)? })
        };
        let select = self.connection.prepare_cached("SELECT at, ack FROM message WHERE seq = ?1");
        select
            .and_then(|mut select| select.query_row([as_i64(seq)], read).optional())
            .map_err(|error| self.error(error).of_message(seq))
    }

    /// Whether the row, if there is one, is what was written.
    pub(in crate::embedded) fn require_sound(&self, seq: u64) -> Result<(), StoreError> {
        let found = read::messages(&self.connection, &[seq]);
        let found = found.map_err(|error| self.error(error).of_message(seq))?;
        let sound = found.iter().all(|stored| stored.head_sound);
        self.require(sound, &format!("message {seq} does not match its checksum"))
    }

    /// How a message has ended, as of the last commit.
    pub(in crate::embedded) fn status_of(&self, seq: u64) -> Result<Option<Status>, StoreError> {
        let outcome = read::outcome(&self.connection, seq);
        let outcome = outcome.map_err(|error| self.error(error).of_message(seq))?;
        Ok(outcome.map(|outcome| outcome.status))
    }
}

//! The names of queues, live and forgotten.

use rusqlite::{Connection, OptionalExtension, params};
use tidegate_domain::QueueName;

use super::super::book::Group;
use super::super::rows::QueueRow;
use super::{Store, StoreError, checksum};

pub(super) fn write(db: &Connection, group: &Group) -> rusqlite::Result<()> {
    if !group.queues.is_empty() {
        let mut insert = db.prepare_cached(
            "INSERT INTO queue (id, name, paused, live, checksum) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        for queue in &group.queues {
            let (name, sum) = (queue.name.as_str(), sum_of_queue(queue));
            insert.execute(params![queue.id, name, queue.paused, queue.live, sum])?;
        }
    }
    for queue in &group.queues_changed {
        db.prepare_cached("UPDATE queue SET paused = ?2, live = ?3, checksum = ?4 WHERE id = ?1")?
            .execute(params![queue.id, queue.paused, queue.live, sum_of_queue(queue)])?;
        if !queue.live {
            remove_unused(db, queue.id)?;
        }
    }
    Ok(())
}

/// A forgotten queue's name goes with the last message that knows it.
pub(super) fn remove_unused(db: &Connection, id: u32) -> rusqlite::Result<()> {
    db.prepare_cached(
        "DELETE FROM queue WHERE id = ?1 AND live = 0
         AND NOT EXISTS (SELECT 1 FROM queue_block WHERE queue_block.queue = ?1)",
    )?
    .execute([id])?;
    Ok(())
}

pub(super) fn sum_of_queue(queue: &QueueRow) -> i64 {
    let numbers = [queue.id.into(), queue.paused.into(), queue.live.into()];
    checksum::of_columns(&numbers, &[Some(queue.name.as_str())])
}

impl Store {
    /// The number of a queue, live or forgotten, as of the last commit.
    pub(in crate::embedded) fn queue_id(&self, name: &QueueName) -> Result<Option<u32>, StoreError> {
        let select = self.connection.prepare_cached("SELECT id FROM queue WHERE name = ?1");
        select
            .and_then(|mut select| select.query_row([name.as_str()], |row| row.get(0)).optional())
            .map_err(|error| self.error(error))
    }

    /// The name of a queue, live or forgotten, as of the last commit.
    pub(in crate::embedded) fn queue_name(&self, id: u32) -> Result<QueueName, StoreError> {
        let name = name(&self.connection, id).map_err(|error| self.error(error))?;
        name.ok_or_else(|| StoreError::damaged(&self.path, format!("there is no queue of number {id}")))
    }
}

pub(super) fn name(db: &Connection, id: u32) -> rusqlite::Result<Option<QueueName>> {
    let name: Option<String> = db
        .prepare_cached("SELECT name FROM queue WHERE id = ?1")?
        .query_row([id], |row| row.get(0))
        .optional()?;
    Ok(name.and_then(|name| QueueName::new(&name).ok()))
}

#[cfg(test)]
mod tests {
    use super::super::{Progress, blocks, schema};
    use super::*;

    #[test]
    fn a_forgotten_name_goes_with_its_last_message_and_no_other_does() {
        let db = Connection::open_in_memory().unwrap();
        schema::ensure(&db, &Progress::default()).unwrap();
        db.execute_batch(
            "INSERT INTO queue VALUES (0, 'live', 0, 1, 0), (1, 'forgotten', 0, 0, 0), (2, 'younger', 0, 0, 0);
             INSERT INTO message (seq, at, queue, lane, checksum, ack, body)
                 VALUES (1, 0, 0, 1, 0, 0, x''), (2, 0, 1, 1, 0, 0, x''), (300, 0, 1, 1, 0, 0, x''), (301, 0, 2, 1, 0, 0, x'');
             INSERT INTO queue_block SELECT DISTINCT queue, seq / 256, 0 FROM message",
        )
        .unwrap();
        let names_without = |up_to: i64| {
            db.execute("DELETE FROM message WHERE seq <= ?1", [up_to]).unwrap();
            for queue in blocks::remove_empty(&db, 0, up_to).unwrap() {
                remove_unused(&db, queue).unwrap();
            }
            (0..3).map(|id| name(&db, id).unwrap().is_some()).collect::<Vec<_>>()
        };
        assert_eq!(names_without(2), [true, true, true]);
        assert_eq!(names_without(300), [true, false, true]);
        assert_eq!(names_without(301), [true, false, false]);
    }
}

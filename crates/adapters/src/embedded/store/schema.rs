use rusqlite::Connection;
use tidegate_domain::{AttemptResult, Status};

use super::head::{self, Head};
use super::loss::Loss;
use super::progress::{Progress, Reached};
use super::{get_meta, set_meta, start};

const VERSION: i64 = 1;

const TABLES: &str = "
    CREATE TABLE meta (
        name TEXT PRIMARY KEY,
        value ANY,
        checksum INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE queue (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        paused INTEGER NOT NULL,
        live INTEGER NOT NULL,       -- 0: forgotten, and kept as the name of messages that ended there
        checksum INTEGER NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX queue_name ON queue (name);

    -- Written once and never changed. The body comes last, so that reading the rest does not touch its pages.
    CREATE TABLE message (
        seq INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,         -- admitted, ms since 1970, as all times
        queue INTEGER NOT NULL,
        lane INTEGER NOT NULL,       -- 0 high, 1 normal, 2 low
        due INTEGER,                 -- NULL: at once
        recipient TEXT,
        user TEXT,                   -- whose quota was charged
        count INTEGER,               -- and how it stood afterwards
        since INTEGER,
        checksum INTEGER NOT NULL,
        expires INTEGER,
        headers TEXT,                -- JSON: [[name, value], …]
        ack INTEGER NOT NULL,        -- 1: delivered only when its recipient acks
        body BLOB NOT NULL
    ) STRICT;
    -- Which queues have messages among seq block × 256 and the following: what is looked up by queue needs no scan
    -- of the others, and no row per message.
    CREATE TABLE queue_block (
        queue INTEGER NOT NULL,
        block INTEGER NOT NULL,
        checksum INTEGER NOT NULL,
        PRIMARY KEY (queue, block)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX queue_block_age ON queue_block (block);

    -- The end of a message. No row: pending.
    CREATE TABLE outcome (
        seq INTEGER PRIMARY KEY,
        status INTEGER NOT NULL,     -- 1 delivered, 2 dead, 3 expired, 4 deleted
        at INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        latency_ms INTEGER NOT NULL,
        reason TEXT,
        checksum INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX dead ON outcome (seq) WHERE status = 2;

    -- Attempts that left their message pending.
    CREATE TABLE attempt (
        seq INTEGER NOT NULL,
        number INTEGER NOT NULL,
        at INTEGER NOT NULL,
        latency_ms INTEGER NOT NULL,
        due INTEGER NOT NULL,
        result INTEGER NOT NULL,     -- 1 failed, 2 accepted, 3 requeued
        ord INTEGER NOT NULL,        -- a requeued message's new place in the order of admission, or 0
        reason TEXT,
        checksum INTEGER NOT NULL,
        PRIMARY KEY (seq, number)
    ) STRICT, WITHOUT ROWID;

    -- Contains the charges up to message seq; later ones stand in the messages' rows.
    CREATE TABLE quota (
        user TEXT PRIMARY KEY,
        max INTEGER NOT NULL,
        window_ms INTEGER NOT NULL,
        count INTEGER NOT NULL,
        since INTEGER NOT NULL,
        exempts_high INTEGER NOT NULL,
        deferred TEXT NOT NULL,      -- later windows with deferred messages: begin:count begin:count …
        seq INTEGER NOT NULL,
        checksum INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;

    -- Idempotency keys of the window, hashed.
    CREATE TABLE key (
        seq INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,
        key BLOB NOT NULL,
        fingerprint BLOB NOT NULL,
        checksum INTEGER NOT NULL
    ) STRICT;

    -- One row, which every commit writes. admitted = delivered + dead + expired + deleted + pending.
    CREATE TABLE totals (
        id INTEGER PRIMARY KEY,
        admitted INTEGER NOT NULL,
        delivered INTEGER NOT NULL,
        dead INTEGER NOT NULL,
        expired INTEGER NOT NULL,
        deleted INTEGER NOT NULL,
        ledger INTEGER NOT NULL,     -- which ledger this is, as in ledger.db-progress
        commits INTEGER NOT NULL,    -- how many there have been
        at INTEGER NOT NULL,         -- when the last was made
        seq_last INTEGER NOT NULL,   -- the last sequence number that was given out
        checksum INTEGER NOT NULL
    ) STRICT;
";

/// Checks the tables, or makes those of a ledger that has none yet.
pub(super) fn ensure(db: &Connection, known: &Progress) -> Result<Head, SchemaError> {
    let exists: bool =
        db.query_row("SELECT count(*) > 0 FROM sqlite_schema WHERE name = 'meta'", [], |row| row.get(0))?;
    if exists {
        return match get_meta(db, "version")? {
            Some(VERSION) => same_tables(db).and_then(|()| Ok(head::read(db)?)),
            found => Err(SchemaError::Version(found)),
        };
    }
    let foreign: bool = db.query_row("SELECT count(*) > 0 FROM sqlite_schema", [], |row| row.get(0))?;
    if foreign {
        return Err(SchemaError::Foreign);
    }
    let nothing = Reached { commits: 0, seq_last: 0, ..known.reached };
    if known.reached.commits > 0 && known.synced {
        return Err(SchemaError::Lost(nothing, known.reached));
    }
    let head = Head { reached: nothing, ..Head::default() };
    let salt = getrandom::u32().map_err(|e| SchemaError::Random(e.to_string()))?;
    db.execute_batch("BEGIN IMMEDIATE")?;
    make_tables(db)?;
    set_meta(db, "version", VERSION)?;
    set_meta(db, "salt", i64::from(salt & tidegate_domain::MessageId::SALT_MAX))?;
    head::write(db, &head)?;
    db.pragma_update(None, "application_id", start::application_of(head.reached.ledger))?;
    db.execute_batch("COMMIT")?;
    Ok(head)
}

fn make_tables(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(TABLES)?;
    db.execute_batch(super::slots::TABLES)?;
    db.execute_batch(super::parties::TABLE)
}

/// A change of the tables under an unchanged version would otherwise be noticed by the first write that fails.
fn same_tables(db: &Connection) -> Result<(), SchemaError> {
    let ours = Connection::open_in_memory()?;
    make_tables(&ours)?;
    let found = columns(db)?;
    match columns(&ours)?.iter().find(|table| !found.contains(table)) {
        None => Ok(()),
        Some((table, _)) => Err(SchemaError::Tables(table.clone())),
    }
}

/// Every table with its columns.
fn columns(db: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    let mut select = db.prepare(
        "SELECT t.name, (SELECT group_concat(c.name || ' ' || c.type || c.\"notnull\") FROM pragma_table_info(t.name) c)
         FROM sqlite_schema t WHERE t.type = 'table'",
    )?;
    select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SchemaError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error("format version {0:?} is not the one that this program writes ({VERSION})")]
    Version(Option<i64>),
    #[error(
        "its table {0} is not the one that this program writes: a development version made it. Choose another data \
         directory, or open it with the program that wrote it"
    )]
    Tables(String),
    #[error("another program's tables are in it, and no ledger; choose another data directory")]
    Foreign,
    #[error("no randomness: {0}")]
    Random(String),
    #[error("it has no tables any more")]
    Lost(Reached, Reached),
}

impl SchemaError {
    /// `wal` is the state of the WAL before SQLite opened it.
    pub(super) fn in_file(self, file: &std::path::Path, wal: &str) -> super::StoreError {
        match self {
            Self::Sqlite(error) => super::StoreError::of(file, error),
            Self::Lost(found, known) => {
                let loss = Loss::new(format!("the file has no tables; {wal}"));
                super::StoreError::lost(file, loss.found(found).known(known))
            }
            other => super::StoreError::damaged(file, other.to_string()),
        }
    }
}

/// Results that leave a message pending.
const RESULTS: [(AttemptResult, i64); 3] =
    [(AttemptResult::Failed, 1), (AttemptResult::Accepted, 2), (AttemptResult::Requeued, 3)];

pub(super) fn result_code(result: AttemptResult) -> i64 {
    RESULTS.iter().find(|(known, _)| *known == result).map_or(0, |(_, code)| *code)
}

pub(super) fn result_of(code: i64) -> Option<AttemptResult> {
    RESULTS.iter().find(|(_, known)| *known == code).map(|(result, _)| *result)
}

pub(super) fn status_code(status: Status) -> i64 {
    match status {
        Status::Pending => 0,
        Status::Delivered => 1,
        Status::Dead => 2,
        Status::Expired => 3,
        Status::Deleted => 4,
    }
}

pub(super) fn status_of(code: i64) -> Option<Status> {
    [Status::Delivered, Status::Dead, Status::Expired, Status::Deleted]
        .into_iter()
        .find(|status| status_code(*status) == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_programs_file_is_left_alone() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE t (a)").unwrap();
        let new = Progress::default();
        assert!(matches!(ensure(&db, &new), Err(SchemaError::Foreign)));
        let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
        assert_eq!(tables, 1);
        let empty = Connection::open_in_memory().unwrap();
        ensure(&empty, &new).and_then(|_| ensure(&empty, &new)).unwrap();
    }

    #[test]
    fn a_ledger_of_other_tables_is_refused_whatever_its_version() {
        let changes = [
            "DROP TABLE queue_block; CREATE INDEX message_by_queue ON message (queue)",
            "ALTER TABLE quota DROP COLUMN deferred",
        ];
        for change in changes {
            let db = Connection::open_in_memory().unwrap();
            ensure(&db, &Progress::default()).unwrap();
            db.execute_batch(change).unwrap();
            let refused = ensure(&db, &Progress::default()).expect_err(change).to_string();
            assert!(refused.contains("queue_block") || refused.contains("quota"), "{refused}");
        }
    }
}

//! What surrounds the rows of an import: before them an empty ledger that nobody uses, after them all that follows from
//! them.

use std::collections::HashMap;

use tidegate_domain::transfer::{Generations, Manifest};
use tidegate_domain::{QueueName, SlotConfigName};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use super::arrival::Tally;
use super::refuse_others;
use super::rows::CLAIM_TOKENS;
use crate::codes::{bounded, duration};
use crate::{OpenError, Options, migrations};

const TABLES: &str = "message, outcome, attempt, pending, chain, key, quota, queue, tally, slot_config, \
                      slot_book, slot, slot_window, slot_run, partition, meta";
const PARTITIONED: [&str; 3] = ["message", "outcome", "attempt"];
/// Older messages stand together with what is kept of dropped partitions.
const PARTITIONS_MAX: i64 = 64;

/// Whoever opens the ledger waits from here on.
pub(super) async fn begin(client: &Client, options: &Options) -> Result<(), OpenError> {
    let timeout = options.lock_timeout.as_millis();
    client
        .batch_execute(&format!(
            "BEGIN; SET LOCAL statement_timeout TO 0; SET LOCAL idle_in_transaction_session_timeout TO 0; \
             SET LOCAL lock_timeout TO {timeout}; SET LOCAL jit TO off"
        ))
        .await?;
    client.execute("SELECT pg_advisory_xact_lock($1)", &[&migrations::LOCK]).await.map_err(in_use)?;
    refuse_others(client, options).await?;
    client.batch_execute(&format!("LOCK TABLE {TABLES} IN ACCESS EXCLUSIVE MODE")).await.map_err(in_use)
}

fn in_use(error: Error) -> OpenError {
    if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) {
        return OpenError::Refused(
            "somebody else uses the ledger in this database; stop it first".to_owned(),
        );
    }
    OpenError::Server(error)
}

pub(super) async fn require_empty(client: &Client) -> Result<(), OpenError> {
    let sql = "SELECT NOT EXISTS (SELECT FROM message) AND NOT EXISTS (SELECT FROM quota) \
               AND NOT EXISTS (SELECT FROM slot_config) AND NOT EXISTS (SELECT FROM queue) \
               AND NOT EXISTS (SELECT FROM key) AND NOT EXISTS (SELECT FROM tally WHERE admitted <> 0) \
               AND NOT EXISTS (SELECT FROM retirement)";
    if client.query_one(sql, &[]).await?.get(0) {
        return Ok(());
    }
    let said = "there is a ledger with something in it already in this database; choose an empty database";
    Err(OpenError::Refused(said.to_owned()))
}

/// Partitions for the numbers that are to come, as if they had been given out here.
pub(super) async fn lay_partitions(client: &Client, options: &Options, seq_last: u64) -> Result<(), Error> {
    let size = options.partition_size();
    let next = bounded(seq_last) + 1;
    let mut first = next.saturating_sub(size.saturating_mul(PARTITIONS_MAX)).max(1);
    let mut statements = String::new();
    for row in client.query("SELECT first FROM partition", &[]).await? {
        let empty: i64 = row.get(0);
        for table in PARTITIONED {
            statements.push_str(&format!("DROP TABLE {table}_{empty};"));
        }
    }
    statements.push_str("DELETE FROM partition;");
    for table in PARTITIONED {
        statements.push_str(&format!(
            "ALTER TABLE {table} DETACH PARTITION {table}_kept; \
             ALTER TABLE {table} ATTACH PARTITION {table}_kept FOR VALUES FROM (MINVALUE) TO ({first});"
        ));
    }
    while first <= next {
        let past_end = first.saturating_add(size);
        for table in PARTITIONED {
            statements.push_str(&format!(
                "CREATE TABLE {table}_{first} (LIKE {table} INCLUDING ALL); \
                 ALTER TABLE {table} ATTACH PARTITION {table}_{first} FOR VALUES FROM ({first}) TO ({past_end});"
            ));
        }
        statements
            .push_str(&format!("INSERT INTO partition (first, past_end) VALUES ({first}, {past_end});"));
        first = past_end;
    }
    client.batch_execute(&statements).await
}

/// How full windows are follows from the slots.
pub(super) async fn make_slot_books(
    client: &Client,
    configs: &HashMap<SlotConfigName, (Generations, i64)>,
) -> Result<(), Error> {
    let sql = "INSERT INTO slot_book (name, version, max_per_window, window_ms, generation, held) \
               VALUES ($1, $2, $3, $4, $5, (SELECT count(*) FROM slot s WHERE s.config = $1))";
    for (name, (generations, max)) in configs {
        let generation = generations.current();
        let window_ms = duration(generations.window_ms(generation).unwrap_or(1));
        let (version, generation) = (generations.versions().cast_signed(), generation.cast_signed());
        client.execute(sql, &[&name.as_str(), &version, max, &window_ms, &generation]).await?;
    }
    client
        .batch_execute(
            "INSERT INTO slot_window (config, window_no, count) \
             SELECT s.config, slot_window_of(s.scheduled, b.window_ms), count(*) FROM slot s \
             JOIN slot_book b ON b.name = s.config GROUP BY 1, 2; \
             INSERT INTO slot_run (config, first, past_end) \
             SELECT f.config, min(f.window_no), max(f.window_no) + 1 FROM ( \
                 SELECT w.config, w.window_no, w.window_no - row_number() OVER ( \
                     PARTITION BY w.config ORDER BY w.window_no) AS island \
                 FROM slot_window w JOIN slot_book b ON b.name = w.config WHERE w.count >= b.max_per_window) f \
             GROUP BY f.config, f.island",
        )
        .await
}

pub(super) async fn make_chains(client: &Client) -> Result<(), Error> {
    client
        .batch_execute(
            "INSERT INTO chain (queue, recipient, high, normal, low) \
             SELECT p.queue, p.recipient, count(*) FILTER (WHERE p.lane = 0), \
                 count(*) FILTER (WHERE p.lane = 1), count(*) FILTER (WHERE p.lane = 2) \
             FROM pending p WHERE p.chained GROUP BY 1, 2; \
             UPDATE pending p SET is_head = true, line_lane = h.lane FROM ( \
                 SELECT DISTINCT ON (w.queue, w.recipient) w.seq, lane_of(c.high, c.normal) AS lane \
                 FROM pending w JOIN chain c USING (queue, recipient) WHERE w.chained \
                 ORDER BY w.queue, w.recipient, w.place) h \
             WHERE p.seq = h.seq",
        )
        .await
}

/// The whole ledger's book is the one that came along: it knows of messages that are gone.
pub(super) async fn make_tallies(
    client: &Client,
    manifest: &Manifest,
    tallies: &HashMap<QueueName, Tally>,
) -> Result<(), Error> {
    let mut all = Tally::default();
    for tally in tallies.values() {
        (0..3).for_each(|lane| all.depth[lane] += tally.depth[lane]);
    }
    let books = manifest.stock.books;
    all.ended = [books.delivered, books.dead, books.expired, books.deleted].map(bounded);
    let queues = tallies.iter().map(|(queue, tally)| (queue.as_str(), tally));
    let sql = "INSERT INTO tally (queue, stripe, admitted, delivered, dead, expired, deleted, high, normal, low) \
               VALUES ($1, 0, $2, $3, $4, $5, $6, $7, $8, $9)";
    client.execute("DELETE FROM tally", &[]).await?;
    for (queue, tally) in queues.chain([("", &all)]) {
        let Tally { ended: [delivered, dead, expired, deleted], depth: [high, normal, low] } = tally;
        let came: i64 = tally.ended.iter().chain(&tally.depth).sum();
        let admitted = if queue.is_empty() { bounded(books.admitted) } else { came };
        client
            .execute(sql, &[&queue, &admitted, delivered, dead, expired, deleted, high, normal, low])
            .await?;
    }
    Ok(())
}

/// Later numbers, ids and tokens. Numbers that are skipped, should this fail after all, do no harm.
pub(super) async fn continue_from(
    client: &Client,
    options: &Options,
    manifest: &Manifest,
) -> Result<(), Error> {
    client.execute("UPDATE meta SET salt = $1", &[&manifest.salt.cast_signed()]).await?;
    let (next, claims) = (bounded(manifest.seq_last) + 1, bounded(manifest.token_last / CLAIM_TOKENS) + 1);
    client.execute("SELECT setval('message_seq', $1, false)", &[&next]).await?;
    let sql = "SELECT setval('lease_seq', greatest((SELECT last_value FROM lease_seq), $1))";
    client.execute(sql, &[&claims]).await?;
    client.execute("SELECT ensure_partitions($1)", &[&options.partition_size()]).await?;
    Ok(())
}

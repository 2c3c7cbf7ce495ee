use std::pin::Pin;

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use tidegate_domain::transfer::{Books, Entry, Export, Inventory, Kind, Manifest, Stock, TransferError};
use tokio_postgres::{Client, Row, RowStream};

use super::rows::{self, SALT_SIZE};
use super::unread;
use crate::codes::{duration, unsigned};
use crate::{OpenError, Options};

const BATCH_ROWS: usize = 2_000;
const BATCH_BYTES: usize = 4 << 20;

/// An export under way: one transaction that sees one moment.
pub(super) struct Departure {
    client: Client,
    manifest: Manifest,
    now: i64,
    keys_since: i64,
    stage: usize,
    rows: Option<Pin<Box<RowStream>>>,
}

/// Kinds of rows, one after the other, and how they are read. `$1` is now, `$2` since when keys count.
type Stage = (&'static str, fn(&Row, u32) -> Result<Entry, tidegate_domain::LedgerError>);

const STAGES: [Stage; 6] = [
    ("SELECT name, paused FROM queue WHERE $1::bigint + $2::bigint IS NOT NULL ORDER BY name", rows::queue),
    (
        "SELECT user_id, max, window_ms, count, since, later_at, later, exempts_high FROM quota \
         WHERE $1::bigint + $2::bigint IS NOT NULL ORDER BY user_id",
        rows::quota,
    ),
    (
        "SELECT version, max_per_window, window_ms, headroom_windows, calendar, created_at, name FROM slot_config \
         WHERE $1::bigint + $2::bigint IS NOT NULL ORDER BY name, version",
        rows::slot_config,
    ),
    (
        "SELECT event, config, generation, window_no, requested, scheduled, created_at, message_seq FROM slot \
         WHERE $1::bigint + $2::bigint IS NOT NULL ORDER BY event",
        rows::slot,
    ),
    (rows::MESSAGES, rows::message),
    (
        "SELECT key, fingerprint, seq, admitted_at FROM key \
         WHERE $1::bigint IS NOT NULL AND admitted_at > $2 ORDER BY admitted_at",
        rows::key,
    ),
];

impl Departure {
    pub(super) async fn begin(client: Client, options: &Options) -> Result<Self, OpenError> {
        // Rows come by number, so indexes in that order need no sorting of everything first. The tables are held before
        // the first look, so that no partition is exchanged under it.
        client
            .batch_execute(
                "SET statement_timeout TO 0; SET idle_in_transaction_session_timeout TO 0; \
                 SET enable_sort TO off; SET enable_hashjoin TO off; SET enable_seqscan TO off; SET jit TO off; \
                 BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
                 LOCK TABLE message, outcome, attempt IN ACCESS SHARE MODE",
            )
            .await?;
        let row = client.query_one("SELECT salt, now_ms() FROM meta", &[]).await?;
        let salt = u32::try_from(row.get::<_, i32>(0)).unwrap_or_default() % SALT_SIZE;
        let now: i64 = row.get(1);
        let keys_since = now.saturating_sub(duration(options.idempotency_window_ms));
        let stock = stock(&client, keys_since).await?;
        // No part of the snapshot: what is drawn later does no harm.
        let sql = "SELECT m.last_value, l.last_value FROM message_seq m, lease_seq l";
        let row = client.query_one(sql, &[]).await?;
        let claims = unsigned(row.get::<_, i64>(1));
        let token_last = (claims + 1) * rows::CLAIM_TOKENS - 1;
        let manifest = Manifest { salt, seq_last: unsigned(row.get(0)), token_last, stock };
        Ok(Self { client, manifest, now, keys_since, stage: 0, rows: None })
    }
}

#[async_trait]
impl Export for Departure {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    async fn next(&mut self) -> Result<Vec<Entry>, TransferError> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some((sql, read)) = STAGES.get(self.stage) {
            let rows = match &mut self.rows {
                Some(rows) => rows,
                None => {
                    let started = self.client.query_raw(*sql, [self.now, self.keys_since]).await;
                    self.rows.insert(Box::pin(started.map_err(|error| unread(&error))?))
                }
            };
            while let Some(row) = rows.try_next().await.map_err(|error| unread(&error))? {
                let entry = read(&row, self.manifest.salt)?;
                bytes += entry.weight_bytes();
                batch.push(entry);
                if batch.len() >= BATCH_ROWS || bytes >= BATCH_BYTES {
                    return Ok(batch);
                }
            }
            self.rows = None;
            self.stage += 1;
        }
        Ok(batch)
    }
}

/// What there is, counted row by row.
pub(super) async fn stock(client: &Client, keys_since: i64) -> Result<Stock, tokio_postgres::Error> {
    let sql = "SELECT (SELECT count(*) FROM queue), (SELECT count(*) FROM quota), \
        (SELECT count(*) FROM slot_config), (SELECT count(*) FROM slot), (SELECT count(*) FROM pending), \
        (SELECT count(*) FROM outcome WHERE status = 2), (SELECT count(*) FROM outcome WHERE status <> 2), \
        (SELECT count(*) FROM attempt), (SELECT count(*) FROM key WHERE admitted_at > $1)";
    let row = client.query_one(sql, &[&keys_since]).await?;
    let mut inventory = Inventory::default();
    for (place, kind) in Kind::ALL.into_iter().enumerate() {
        inventory.add(kind, unsigned(row.get(place)));
    }
    let sql = "SELECT coalesce(sum(admitted), 0)::bigint, coalesce(sum(delivered), 0)::bigint, \
        coalesce(sum(dead), 0)::bigint, coalesce(sum(expired), 0)::bigint, coalesce(sum(deleted), 0)::bigint \
        FROM tally WHERE queue = ''";
    let row = client.query_one(sql, &[]).await?;
    let [admitted, delivered, dead, expired, deleted] = [0, 1, 2, 3, 4].map(|place| unsigned(row.get(place)));
    Ok(Stock { inventory, books: Books { admitted, delivered, dead, expired, deleted } })
}

impl std::fmt::Debug for Departure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Departure").field("manifest", &self.manifest).finish_non_exhaustive()
    }
}

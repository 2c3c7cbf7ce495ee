use std::time::Duration;

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::connection::{ANSWER_MARGIN, in_time};
use crate::{OpenError, Options};

/// One step of the schema. A step only adds: gateways of the version before go on working beside it.
#[derive(Debug)]
struct Migration {
    version: i32,
    /// The oldest version of a gateway that can work with the schema after this step.
    oldest: i32,
    sql: &'static [&'static str],
}

const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    oldest: 1,
    sql: &[
        include_str!("migrations/v1/tables.sql"),
        include_str!("migrations/v1/tally.sql"),
        include_str!("migrations/v1/ending.sql"),
        include_str!("migrations/v1/quota.sql"),
        include_str!("migrations/v1/entering.sql"),
        include_str!("migrations/v1/singly.sql"),
        include_str!("migrations/v1/admit.sql"),
        include_str!("migrations/v1/claim.sql"),
        include_str!("migrations/v1/settle.sql"),
        include_str!("migrations/v1/advance.sql"),
        include_str!("migrations/v1/pick_up.sql"),
        include_str!("migrations/v1/queues.sql"),
        include_str!("migrations/v1/transit.sql"),
        include_str!("migrations/v1/dead.sql"),
        include_str!("migrations/v1/sweep.sql"),
        include_str!("migrations/v1/partitions.sql"),
        include_str!("migrations/v1/retirement.sql"),
        include_str!("migrations/v1/parties.sql"),
        include_str!("migrations/v1/slots.sql"),
        include_str!("migrations/v1/slot_configs.sql"),
        include_str!("migrations/v1/reserve.sql"),
        include_str!("migrations/v1/rights.sql"),
    ],
}];

/// Gateways that start together wait for the one that migrates.
pub(crate) const LOCK: i64 = 0x7469_6465_6761_7465;
/// A migration may take longer than any other statement, and so may the first partitions.
const LOCK_TIMEOUTS: u32 = 10;

/// Brings the database's schema to this version. Does nothing when it is there already, or further.
pub async fn migrate(options: &Options) -> Result<(), OpenError> {
    let mut client = crate::open::connect(options).await?;
    migrate_on(&mut client, options).await
}

pub(crate) async fn migrate_on(client: &mut Client, options: &Options) -> Result<(), OpenError> {
    let transaction = client.transaction().await?;
    let patience = options.lock_timeout * LOCK_TIMEOUTS;
    transaction.batch_execute(&format!("SET LOCAL lock_timeout TO {}", patience.as_millis())).await?;
    let locked = transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await;
    locked.map_err(|error| unless_held(error, patience))?;
    // Without the right to make a schema, one that is there does.
    if transaction.query_opt("SELECT FROM pg_namespace WHERE nspname = 'tidegate'", &[]).await?.is_none() {
        transaction.batch_execute("CREATE SCHEMA tidegate").await?;
    }
    let known = transaction.query_one("SELECT to_regclass('tidegate.migration') IS NOT NULL", &[]).await?;
    if !known.get::<_, bool>(0) {
        transaction
            .batch_execute(
                "CREATE TABLE tidegate.migration (version integer PRIMARY KEY, oldest integer NOT NULL, \
                 applied_at timestamptz NOT NULL DEFAULT now())",
            )
            .await?;
    }
    let row = transaction
        .query_one("SELECT coalesce(max(version), 0), coalesce(max(oldest), 0) FROM tidegate.migration", &[])
        .await?;
    let (version, oldest): (i32, i32) = (row.get(0), row.get(1));
    if oldest > MIGRATIONS.last().map_or(0, |last| last.version) {
        return Err(OpenError::Newer);
    }
    transaction.batch_execute("SET LOCAL search_path TO tidegate; SET LOCAL statement_timeout TO 0").await?;
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > version) {
        for sql in migration.sql {
            transaction.batch_execute(sql).await?;
        }
        transaction
            .execute(
                "INSERT INTO migration (version, oldest) VALUES ($1, $2)",
                &[&migration.version, &migration.oldest],
            )
            .await?;
        tracing::info!(version = migration.version, "the database's schema is migrated");
    }
    Ok(transaction.commit().await?)
}

/// Makes the partitions of the first messages. Gateways that start together wait for the one that makes them as long as
/// for one that migrates: on a slow disk that takes longer than a statement of a running gateway may.
pub(crate) async fn make_first_partitions(client: &mut Client, options: &Options) -> Result<(), OpenError> {
    let patience = options.statement_timeout.max(options.lock_timeout) * LOCK_TIMEOUTS;
    let transaction = client.transaction().await?;
    let timeouts =
        format!("SET LOCAL statement_timeout TO {0}; SET LOCAL lock_timeout TO {0}", patience.as_millis());
    transaction.batch_execute(&timeouts).await?;
    let making = async {
        let made = transaction.execute("SELECT ensure_partitions($1)", &[&options.partition_size()]).await;
        made.map_err(|error| unless_held(error, patience))
    };
    in_time(patience + ANSWER_MARGIN, making).await?;
    Ok(transaction.commit().await?)
}

fn unless_held(error: tokio_postgres::Error, patience: Duration) -> OpenError {
    let is_held = error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE);
    if is_held { OpenError::Migrating(patience) } else { error.into() }
}

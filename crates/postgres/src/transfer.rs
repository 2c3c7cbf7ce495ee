//! The whole state of a database's ledger, out of it and into an empty one.

mod arrival;
mod departure;
mod rows;
mod whole;

use std::time::Duration;

use tidegate_domain::counted;
use tidegate_domain::transfer::{Export, Import, Manifest, TransferError};
use tokio::time::Instant;
use tokio_postgres::Client;

use self::arrival::Arrival;
use self::departure::Departure;
use crate::error::{Access, ledger_error};
use crate::open::{check_server, connect};
use crate::{OpenError, Options, SessionHook, connection, migrations};

/// How long connections may take to go away, and how often they are looked for.
const FAREWELL: Duration = Duration::from_secs(3);
const FAREWELL_STEP: Duration = Duration::from_millis(20);

/// Begins to read, as of now. Other gateways go on changing what was read, so they are refused unless `live`.
pub async fn export(options: &Options, live: bool) -> Result<Box<dyn Export>, OpenError> {
    let client = session(options).await?;
    let exists = client.query_one("SELECT to_regclass('tidegate.meta') IS NOT NULL", &[]).await?;
    if !exists.get::<_, bool>(0) {
        return Err(OpenError::Refused("there is no ledger in this database".to_owned()));
    }
    if !live {
        refuse_others(&client, options).await?;
    }
    Ok(Box::new(Departure::begin(client, options).await?))
}

/// Checks the server, brings its schema up to date, and begins to fill it, in one transaction. Gateways that start
/// meanwhile wait for its end.
pub async fn import(options: Options, manifest: Manifest) -> Result<Box<dyn Import>, OpenError> {
    let mut client = session(&options).await?;
    check_server(&client, &options).await?;
    migrations::migrate_on(&mut client, &options).await?;
    Ok(Box::new(Arrival::begin(client, options, manifest).await?))
}

/// A connection without the settings that make sense for small statements only.
async fn session(options: &Options) -> Result<Client, OpenError> {
    let client = connect(options).await?;
    if let Some(SessionHook(prepare)) = &options.session_hook {
        prepare(&client).await?;
    }
    client.batch_execute("SET search_path TO tidegate; SET client_min_messages TO warning").await?;
    Ok(client)
}

/// Gateways are known by the name that they give their connections. The server needs a moment to notice that one has
/// stopped.
async fn refuse_others(client: &Client, options: &Options) -> Result<(), OpenError> {
    let config = connection::config(options)?;
    let name = config.get_application_name().unwrap_or_default();
    let sql = "SELECT count(*) FROM pg_stat_activity \
               WHERE datname = current_database() AND pid <> pg_backend_pid() \
                   AND application_name IN ($1, 'tidegate')";
    let begun = Instant::now();
    loop {
        let sessions: i64 = client.query_one(sql, &[&name]).await?.get(0);
        if sessions == 0 {
            return Ok(());
        }
        if begun.elapsed() >= FAREWELL {
            let connections = counted(sessions.unsigned_abs(), "connection");
            let said = format!("gateways are connected to this database ({connections}); stop them first");
            return Err(OpenError::Refused(said));
        }
        tokio::time::sleep(FAREWELL_STEP).await;
        // Within a transaction, what was seen once is shown again.
        client.execute("SELECT pg_stat_clear_snapshot()", &[]).await?;
    }
}

fn unread(error: &tokio_postgres::Error) -> TransferError {
    TransferError::Ledger(ledger_error(error, Access::Read))
}

/// Before the commit nothing has happened, whatever failed.
fn unwritten(error: &tokio_postgres::Error) -> TransferError {
    TransferError::Ledger(ledger_error(error, Access::Read))
}

fn refused(said: String) -> TransferError {
    TransferError::Refused(said)
}

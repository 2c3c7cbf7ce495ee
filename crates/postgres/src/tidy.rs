use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::open::{Core, connect};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Beside its work a table has so many times that long to rest, in case that somebody's old snapshot keeps all of it.
const REST: u32 = 20;
/// A partition of messages is vacuumed for erased texts no more often.
const ERASED_SECS: f64 = 10.0;
const TIME_MAX: Duration = Duration::from_secs(60);

/// Of the tables whose rows come and go all day, those with so many dead ones that claims would notice. For the owner, or
/// (since PostgreSQL 17) whoever was granted it.
///
/// Rows of `message` die when their texts are erased, edited or removed: a VACUUM lets the server write over them, so it
/// comes soon, however few there are.
const UNTIDY: &str = "SELECT c.relname, t.is_busy FROM ( \
         SELECT to_regclass(v.name)::oid AS oid, true AS is_busy FROM (VALUES ('pending'), ('chain')) AS v (name) \
         UNION ALL SELECT i.inhrelid, false FROM pg_inherits i WHERE i.inhparent = to_regclass('message')) t \
     JOIN pg_class c ON c.oid = t.oid \
     WHERE CASE WHEN t.is_busy THEN pg_stat_get_dead_tuples(c.oid) > $1 + pg_stat_get_live_tuples(c.oid) / 20 \
             ELSE pg_stat_get_dead_tuples(c.oid) > 0 AND coalesce( \
                 pg_stat_get_last_vacuum_time(c.oid) < now() - make_interval(secs => $2), true) END \
         AND (pg_has_role(c.relowner, 'USAGE') OR CASE WHEN current_setting('server_version_num')::integer >= 170000 \
             THEN has_table_privilege(c.oid, 'MAINTAIN') ELSE false END)";

/// Claims read a line from its beginning, where thousands have been settled in every second, and walk over all that they left
/// there. PostgreSQL takes that away once a minute; this does it when it is worth it, for ever.
pub async fn run(core: Arc<Core>) {
    let mut rest = Duration::ZERO;
    loop {
        sleep(rest.max(core.options.sweep_every)).await;
        let begun = Instant::now();
        let tidied = timeout(TIME_MAX, core.tidy()).await.unwrap_or_else(|late| Err(late.into()));
        rest = match tidied {
            Ok(false) => Duration::ZERO,
            Ok(true) => begun.elapsed() * REST,
            Err(error) => {
                // Claims take longer then, and nothing else happens.
                tracing::debug!(error, "dead rows of the ledger on PostgreSQL are left to the server");
                TIME_MAX
            }
        };
    }
}

impl Core {
    /// Says whether there was anything to do.
    async fn tidy(&self) -> Result<bool, Error> {
        let rows = self.read(UNTIDY, &[&self.options.dead_rows_max, &ERASED_SECS]).await?;
        if rows.is_empty() {
            return Ok(false);
        }
        // On a connection of its own: nobody has to wait for it.
        let client = connect(&self.options).await?;
        // Under another name than gateways: one that outlives its gateway for a moment is no reason to refuse an export.
        let session = format!(
            "SET application_name TO 'tidegate vacuum'; SET statement_timeout TO {}",
            TIME_MAX.as_millis()
        );
        client.batch_execute(&session).await?;
        for row in &rows {
            // Of busy tables all indexes, since it is for them; and without the lock that cutting the file's end would take.
            let (table, is_busy): (&str, bool) = (row.get(0), row.get(1));
            let indexes = if is_busy { "ON" } else { "AUTO" };
            let sql = format!(
                "VACUUM (INDEX_CLEANUP {indexes}, TRUNCATE OFF, SKIP_LOCKED ON, PARALLEL 0) tidegate.{table}"
            );
            client.batch_execute(&sql).await?;
        }
        Ok(true)
    }
}

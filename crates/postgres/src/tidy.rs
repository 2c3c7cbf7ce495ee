use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::LedgerError;
use tokio::time::{Instant, sleep};

use crate::error::Access;
use crate::open::Core;

/// Beside its work a table has so many times that long to rest, in case that somebody's old snapshot keeps all of it.
const REST: u32 = 20;
const TIME_MAX: Duration = Duration::from_secs(60);

/// Of the tables whose rows come and go all day, those with so many dead ones that claims would notice. For the owner, or
/// (since PostgreSQL 17) whoever was granted it.
const UNTIDY: &str = "SELECT t.name FROM (VALUES ('pending'), ('chain')) AS t (name) \
     JOIN pg_class c ON c.oid = to_regclass(t.name) \
     WHERE pg_stat_get_dead_tuples(c.oid) > $1 + pg_stat_get_live_tuples(c.oid) / 20 \
         AND (pg_has_role(c.relowner, 'USAGE') OR CASE WHEN current_setting('server_version_num')::integer >= 170000 \
             THEN has_table_privilege(c.oid, 'MAINTAIN') ELSE false END)";

/// Claims read a line from its beginning, where thousands have been settled in every second, and walk over all that they left
/// there. PostgreSQL takes that away once a minute; this does it when it is worth it, for ever.
pub async fn run(core: Arc<Core>) {
    let mut rest = Duration::ZERO;
    loop {
        sleep(rest.max(core.options.sweep_every)).await;
        let begun = Instant::now();
        // Whatever is wrong, others notice it too.
        let tidied = core.tidy().await.unwrap_or(false);
        rest = if tidied { begun.elapsed() * REST } else { Duration::ZERO };
    }
}

impl Core {
    /// Says whether there was anything to do.
    async fn tidy(&self) -> Result<bool, LedgerError> {
        let rows = self.read(UNTIDY, &[&self.options.dead_rows_max]).await?;
        for row in &rows {
            let table: &str = row.get(0);
            // All of its indexes, since it is for them; and without the lock that the end of the file would take.
            let sql = format!("VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF, SKIP_LOCKED ON, PARALLEL 0) {table}");
            let done = self.connections.call_for(&sql, TIME_MAX).await;
            done.map_err(|error| error.meaning(Access::Write))?;
        }
        Ok(!rows.is_empty())
    }
}

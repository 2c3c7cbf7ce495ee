use tidegate_domain::limits::Quota;
use tidegate_domain::{LedgerError, Timestamp, UserId};
use tokio_postgres::Row;

use crate::codes::{duration, nonsense, small, unsigned};
use crate::open::Core;

const COLUMNS: &str = "user_id, max, window_ms, count, since";

impl Core {
    pub async fn put_quota(&self, user: UserId, limit: u32, window_ms: u64) -> Result<Quota, LedgerError> {
        let sql = format!("SELECT {COLUMNS} FROM put_quota($1, $2, $3)");
        let rows =
            self.write(&sql, &[&user.as_str(), &i64::from(limit), &duration(window_ms.max(1))]).await?;
        let row = rows.first().ok_or_else(|| nonsense("quota", "nothing"))?;
        Ok(quota(row))
    }

    pub async fn quota(&self, user: UserId) -> Result<Option<Quota>, LedgerError> {
        let rows = self.read(&format!("SELECT {COLUMNS} FROM quota_of($1)"), &[&user.as_str()]).await?;
        Ok(rows.first().map(quota))
    }

    pub async fn delete_quota(&self, user: UserId) -> Result<bool, LedgerError> {
        let rows = self.write("SELECT delete_quota($1)", &[&user.as_str()]).await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }

    pub async fn quotas(
        &self,
        after: Option<UserId>,
        max: usize,
    ) -> Result<Vec<(UserId, Quota)>, LedgerError> {
        let after = after.as_ref().map(UserId::as_str);
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let rows = self.read(&format!("SELECT {COLUMNS} FROM quotas($1, $2)"), &[&after, &max]).await?;
        let named = rows.iter().map(|row| {
            let name: &str = row.get(0);
            let user = UserId::new(name).map_err(|_| nonsense("user", name))?;
            Ok((user, quota(row)))
        });
        named.collect()
    }
}

fn quota(row: &Row) -> Quota {
    Quota {
        limit: small(row.get(1)),
        window_ms: unsigned(row.get(2)),
        count: small(row.get(3)),
        since: Timestamp::from_millis(row.get(4)),
    }
}

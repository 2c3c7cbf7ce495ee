use tidegate_domain::limits::{Quota, QuotaRule};
use tidegate_domain::{LedgerError, Timestamp, UserId};
use tokio_postgres::Row;

use crate::codes::{duration, nonsense, small, unsigned};
use crate::open::Core;

const COLUMNS: &str = "user_id, max, window_ms, count, since, exempts_high";

impl Core {
    pub async fn set_quota(&self, user: UserId, rule: QuotaRule) -> Result<Quota, LedgerError> {
        let sql = format!("SELECT {COLUMNS} FROM put_quota($1, $2, $3, $4)");
        let (max, window_ms) = (i64::from(rule.limit), duration(rule.window_ms.max(1)));
        let rows = self.write(&sql, &[&user.as_str(), &max, &window_ms, &rule.exempts_high]).await?;
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
        exempts_high: row.get(5),
    }
}

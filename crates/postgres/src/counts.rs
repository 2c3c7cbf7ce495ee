use tidegate_domain::{Counts, LedgerError, QueueCounts, QueueName};
use tokio_postgres::Row;

use crate::codes::{nonsense, unsigned};
use crate::open::Core;

const COUNTS: &str = "SELECT coalesce(sum(admitted), 0)::bigint, coalesce(sum(delivered), 0)::bigint, \
    coalesce(sum(dead), 0)::bigint, coalesce(sum(expired), 0)::bigint, coalesce(sum(deleted), 0)::bigint, \
    coalesce(sum(high), 0)::bigint, coalesce(sum(normal), 0)::bigint, coalesce(sum(low), 0)::bigint, \
    (SELECT count(*) FROM pending p, (SELECT now_ms() AS now) n \
        WHERE p.token IS NOT NULL AND p.ends_at > n.now) FROM tally WHERE queue = ''";

const QUEUE_COUNTS: &str = "SELECT q.name, q.paused, coalesce(t.high, 0)::bigint, \
    coalesce(t.normal, 0)::bigint, coalesce(t.low, 0)::bigint, coalesce(l.leased, 0)::bigint FROM queue q \
    CROSS JOIN LATERAL (SELECT sum(high) AS high, sum(normal) AS normal, sum(low) AS low FROM tally \
        WHERE queue = q.name) t \
    LEFT JOIN (SELECT p.queue, count(*) AS leased FROM pending p, (SELECT now_ms() AS now) n \
        WHERE p.token IS NOT NULL AND p.ends_at > n.now GROUP BY p.queue) l ON l.queue = q.name ORDER BY q.name";

impl Core {
    pub async fn counts(&self) -> Result<Counts, LedgerError> {
        let rows = self.read(COUNTS, &[]).await?;
        let row = rows.first().ok_or_else(|| nonsense("book", "nothing"))?;
        let at = |place: usize| unsigned(row.get(place));
        let depth = [at(5), at(6), at(7)];
        Ok(Counts {
            admitted: at(0),
            delivered: at(1),
            dead: at(2),
            expired: at(3),
            deleted: at(4),
            pending: depth.iter().sum(),
            leased: at(8),
            depth,
        })
    }

    pub async fn queue_counts(&self) -> Result<Vec<QueueCounts>, LedgerError> {
        let rows = self.read(QUEUE_COUNTS, &[]).await?;
        rows.iter().map(queue_counts).collect()
    }
}

fn queue_counts(row: &Row) -> Result<QueueCounts, LedgerError> {
    let name: &str = row.get(0);
    Ok(QueueCounts {
        queue: QueueName::new(name).map_err(|_| nonsense("queue", name))?,
        paused: row.get(1),
        depth: [2, 3, 4].map(|place| unsigned(row.get(place))),
        leased: unsigned(row.get(5)),
    })
}

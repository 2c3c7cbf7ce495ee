use bytes::Bytes;
use tidegate_domain::{
    AttemptRecord, Body, Damaged, LedgerError, Listing, MessageId, MessageRecord, QueueName, Recipient,
    Status, Timestamp, UserId,
};
use tokio_postgres::Row;

use crate::codes::{checksum, headers, lane, nonsense, result, small, status, unsigned};
use crate::open::Core;

/// Messages with all that became of them, as of one moment.
fn select(body: &str) -> String {
    format!(
        "SELECT m.seq, m.admitted_at, m.queue, m.recipient, m.lane, m.user_id, m.expires_at, m.headers, m.ack_required, \
    {body}, m.checksum, coalesce(o.due_at, p.due_at, m.admitted_at), coalesce(o.status, 0::smallint), o.at, \
    o.reason, a.numbers, a.ats, a.latencies, a.results, a.reasons \
FROM message m LEFT JOIN pending p ON p.seq = m.seq LEFT JOIN outcome o ON o.seq = m.seq \
CROSS JOIN LATERAL ( \
    SELECT array_agg(t.number ORDER BY t.number) AS numbers, array_agg(t.at ORDER BY t.number) AS ats, \
        array_agg(t.latency_ms ORDER BY t.number) AS latencies, \
        array_agg(t.result ORDER BY t.number) AS results, array_agg(t.reason ORDER BY t.number) AS reasons \
    FROM (SELECT number, at, latency_ms, result, reason FROM attempt WHERE seq = m.seq \
        UNION ALL \
        SELECT o.number, o.at, o.latency_ms, \
            (CASE o.status WHEN 1 THEN 0 WHEN 2 THEN 1 ELSE 3 END)::smallint, o.reason \
        WHERE o.number IS NOT NULL) t) a \
WHERE m.seq = ANY ($1) ORDER BY m.seq"
    )
}

impl Core {
    pub async fn message(&self, id: MessageId) -> Result<Option<MessageRecord>, LedgerError> {
        let (seq, _) = self.parts(id);
        let rows = self.rows(&[seq], true).await?;
        let records = rows.iter().map(|row| record(self, row)).collect::<Result<Vec<_>, _>>()?;
        Ok(records.into_iter().find(|record| record.id == id))
    }

    /// One damaged message costs nothing but itself.
    pub async fn listing(&self, seqs: &[i64], with_bodies: bool) -> Result<Listing, LedgerError> {
        let mut listing = Listing::default();
        for row in self.rows(seqs, with_bodies).await? {
            match record(self, &row) {
                Ok(record) => listing.messages.push(record),
                Err(error) => {
                    let (id, problem) = (self.id(row.get(1), row.get(0)), error.to_string());
                    tracing::error!(message_id = %id, problem, "a damaged message can't be listed");
                    listing.damaged.push(Damaged { id, problem });
                }
            }
        }
        Ok(listing)
    }

    async fn rows(&self, seqs: &[i64], with_bodies: bool) -> Result<Vec<Row>, LedgerError> {
        self.read(&select(if with_bodies { "m.body" } else { "NULL::bytea" }), &[&seqs]).await
    }
}

fn record(core: &Core, row: &Row) -> Result<MessageRecord, LedgerError> {
    let (name, recipient, user): (&str, Option<&str>, Option<&str>) = (row.get(2), row.get(3), row.get(5));
    let id = core.id(row.get(1), row.get(0));
    let status = status(row.get(12))?;
    let body = match row.get::<_, Option<&[u8]>>(9) {
        None => Body::Unread,
        Some(_) if status == Status::Deleted => Body::Erased,
        Some(body) if checksum(body) == row.get::<_, i64>(10) => Body::Whole(Bytes::copy_from_slice(body)),
        Some(_) => return Err(LedgerError::Corrupt(format!("the text of {id} does not match its checksum"))),
    };
    let time = |place: usize| row.get::<_, Option<i64>>(place).map(Timestamp::from_millis);
    Ok(MessageRecord {
        id,
        queue: QueueName::new(name).map_err(|error| nonsense("queue", error))?,
        recipient: recipient.map(Recipient::new).transpose().map_err(|error| nonsense("recipient", error))?,
        lane: lane(row.get(4))?,
        user: user.map(UserId::new).transpose().map_err(|error| nonsense("user", error))?,
        admitted_at: Timestamp::from_millis(row.get(1)),
        due_at: Timestamp::from_millis(row.get(11)),
        status,
        settled_at: time(13),
        reason: row.get::<_, Option<String>>(14).filter(|_| status == Status::Dead),
        attempts: attempts(row)?,
        expires_at: time(6),
        headers: headers(row.get(7))?,
        ack_required: row.get(8),
        body,
    })
}

fn attempts(row: &Row) -> Result<Vec<AttemptRecord>, LedgerError> {
    let Some(numbers) = row.get::<_, Option<Vec<i32>>>(15) else { return Ok(Vec::new()) };
    let (ats, latencies): (Vec<i64>, Vec<i64>) = (row.get(16), row.get(17));
    let (results, reasons): (Vec<i16>, Vec<Option<String>>) = (row.get(18), row.get(19));
    let columns = numbers.into_iter().zip(ats).zip(latencies).zip(results).zip(reasons);
    let attempts = columns.map(|((((number, at), latency_ms), code), reason)| {
        Ok(AttemptRecord {
            number: small(i64::from(number)),
            at: Timestamp::from_millis(at),
            latency_ms: unsigned(latency_ms),
            result: result(code)?,
            reason,
        })
    });
    attempts.collect()
}

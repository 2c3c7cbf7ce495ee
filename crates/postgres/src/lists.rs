use tidegate_domain::{ATTEMPT_BYTES, Filter, LedgerError, Listing, MessageRecord, Page, Status, Timestamp};

use crate::codes::{lane_code, seq, status_code};
use crate::open::Core;

/// How many messages one page looks at, at the most.
const LOOKED_AT_MAX: i64 = 5_000;

impl Core {
    pub async fn list(&self, filter: Filter, page: Page) -> Result<Listing, LedgerError> {
        if page.max == 0 {
            return Ok(Listing::default());
        }
        let found = self.find_party(&filter, page.after).await?;
        let after = page.after.map_or(-1, seq);
        // Of a recipient or user, more may have been found than a slice holds.
        let max = if found.is_some() { i64::from(i32::MAX) } else { LOOKED_AT_MAX };
        let wanted = i64::try_from(page.max).unwrap_or(max).min(max);
        let rows = self
            .read(
                &find(&filter, found.is_some()),
                &[
                    &after,
                    &LOOKED_AT_MAX,
                    &filter.queue.as_ref().map(|queue| queue.as_str()),
                    &filter.status.map(status_code),
                    &filter.ended,
                    &filter.recipient.as_ref().map(|recipient| recipient.as_str()),
                    &filter.lane.map(lane_code),
                    &filter.from.map(Timestamp::millis),
                    &filter.to.map(Timestamp::millis),
                    &(wanted + 1),
                    &page.body_bytes_max.is_some(),
                    &filter.user.as_ref().map(|user| user.as_str()),
                    &found.as_ref().map(|found| &found.seqs),
                ],
            )
            .await?;
        let looked_to = found.and_then(|found| found.looked_to);
        let (mut seqs, mut bytes, mut last, mut next) = (Vec::new(), 0, None, looked_to);
        for row in &rows {
            let (found, is_match): (i64, bool) = (row.get(0), row.get(2));
            let id = self.id(row.get(1), found);
            if !is_match {
                // The end of what was looked at.
                next = Some(id);
                break;
            }
            bytes += usize::try_from(row.get::<_, i32>(3)).unwrap_or_default();
            let fits = page.body_bytes_max.is_none_or(|max| bytes <= max) || seqs.is_empty();
            if seqs.len() == page.max || !fits {
                next = last;
                break;
            }
            seqs.push(found);
            last = Some(id);
        }
        let listing = self.listing(&seqs, page.body_bytes_max.is_some()).await?;
        Ok(within(Listing { next, ..listing }, page.body_bytes_max))
    }
}

/// The first messages whose texts take no more than so many bytes, one at least: headers and the last reason are known only
/// now.
fn within(mut listing: Listing, bytes_max: Option<usize>) -> Listing {
    let mut bytes = 0;
    let fits = |record: &&MessageRecord| {
        bytes += record.text_bytes();
        bytes_max.is_none_or(|max| bytes <= max)
    };
    let fitting = listing.messages.iter().take_while(fits).count().max(1);
    if fitting < listing.messages.len() {
        listing.messages.truncate(fitting);
        listing.next = listing.messages.last().map(|record| record.id);
        listing.damaged.retain(|damaged| listing.next.is_some_and(|next| damaged.id.seq() <= next.seq()));
    }
    listing
}

/// Looks at a bounded slice by number: of dead letters and of pending messages there are lists of their own.
fn find(filter: &Filter, by_party: bool) -> String {
    let source = match filter.status {
        // One by one: the numbers are known.
        _ if by_party => {
            "SELECT m.*, coalesce((SELECT o.status FROM outcome o WHERE o.seq = c.seq), 0::smallint) AS status \
             FROM unnest($13::bigint[]) AS c (seq) CROSS JOIN LATERAL ( \
                 SELECT m.seq, m.admitted_at, m.queue, m.recipient, m.user_id, m.lane \
                 FROM message m WHERE m.seq = c.seq OFFSET 0) m"
        }
        Some(Status::Dead) => {
            "SELECT m.seq, m.admitted_at, m.queue, m.recipient, m.user_id, m.lane, 2::smallint AS status \
             FROM message m JOIN outcome o USING (seq) WHERE o.status = 2 AND o.seq > $1 ORDER BY o.seq LIMIT $2"
        }
        Some(Status::Pending) => {
            "SELECT p.seq, p.admitted_at, p.queue, p.recipient, NULL AS user_id, p.lane, 0::smallint AS status \
             FROM pending p WHERE p.seq > $1 ORDER BY p.seq LIMIT $2"
        }
        _ => {
            "SELECT m.seq, m.admitted_at, m.queue, m.recipient, m.user_id, m.lane, \
                 coalesce(o.status, 0::smallint) AS status \
             FROM message m LEFT JOIN outcome o USING (seq) WHERE m.seq > $1 ORDER BY m.seq LIMIT $2"
        }
    };
    // Every source leaves some parameters out, so all are named once. What was found is all there is; otherwise the
    // slice may have been cut.
    let cut = if by_party { "false" } else { "(SELECT count(*) FROM slice) = $2" };
    format!(
        "WITH slice AS MATERIALIZED ({source}), hit AS ( \
             SELECT seq, admitted_at FROM slice \
             WHERE ($3::text IS NULL OR queue = $3) AND ($4::smallint IS NULL OR status = $4) \
                 AND (NOT $5::boolean OR status <> 0) AND ($6::text IS NULL OR recipient = $6) \
                 AND ($12::text IS NULL OR user_id = $12) \
                 AND ($7::smallint IS NULL OR lane = $7) AND ($8::bigint IS NULL OR admitted_at >= $8) \
                 AND ($9::bigint IS NULL OR admitted_at < $9) \
                 AND ($1::bigint IS NOT NULL OR $2::bigint IS NOT NULL OR $13::bigint[] IS NOT NULL) \
             ORDER BY seq LIMIT $10) \
         SELECT seq, admitted_at, true AS is_match, CASE WHEN $11::boolean THEN coalesce( \
             (SELECT octet_length(m.body) FROM message m WHERE m.seq = hit.seq), 0) + coalesce( \
             (SELECT sum({ATTEMPT_BYTES} + coalesce(octet_length(a.reason), 0)) FROM attempt a \
              WHERE a.seq = hit.seq), 0)::integer ELSE 0 END FROM hit \
         UNION ALL \
         (SELECT seq, admitted_at, false, 0 FROM slice WHERE {cut} \
          ORDER BY seq DESC LIMIT 1) \
         ORDER BY is_match DESC, seq"
    )
}

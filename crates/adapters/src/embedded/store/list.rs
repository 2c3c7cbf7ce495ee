//! Lists of messages, page by page.

use rusqlite::{Connection, OptionalExtension, Row};
use tidegate_domain::{Filter, Listing, MessageId, Page, Status, Timestamp};

use super::{as_i64, blocks, get_meta, read, schema};

/// Rows that one page looks at; what does not fit comes with the next.
const EXAMINED_MAX: usize = 20_000;

/// Messages that match, oldest first. The error names what is damaged.
pub(in crate::embedded) fn list(
    db: &Connection,
    filter: &Filter,
    page: &Page,
    salt: u32,
) -> rusqlite::Result<Result<Listing, String>> {
    if page.max == 0 {
        return Ok(Ok(Listing { messages: Vec::new(), next: page.after }));
    }
    let queue = match &filter.queue {
        None => None,
        Some(name) => {
            let id: Option<i64> = db
                .prepare_cached("SELECT id FROM queue WHERE name = ?1")?
                .query_row([name.as_str()], |row| row.get(0))
                .optional()?;
            match id {
                None => return Ok(Ok(Listing::default())),
                some => some,
            }
        }
    };
    let mut after = page.after.map_or(-1, |id| as_i64(id.seq()));
    if filter.status == Some(Status::Pending) {
        after = after.max(get_meta(db, "live_from")?.unwrap_or(0) - 1);
    }
    // Dead letters have an index of their own, and queues know their blocks; the rest is decided row by row.
    let (from, params) = match (filter.status, queue) {
        (Some(Status::Dead), _) => (
            "outcome INDEXED BY dead JOIN message ON message.seq = outcome.seq AND status = 2
             WHERE outcome.seq > ?1 ORDER BY outcome.seq",
            vec![after],
        ),
        (_, Some(queue)) => (blocks::MESSAGES_OF_QUEUE, vec![after, queue, blocks::BLOCK]),
        _ => (
            "message LEFT JOIN outcome ON outcome.seq = message.seq
             WHERE message.seq > ?1 ORDER BY message.seq",
            vec![after],
        ),
    };
    // The length of a body is known without a look at its pages.
    let sql = format!(
        "SELECT message.seq, message.at, lane, recipient, status, message.queue, length(message.body) FROM {from}"
    );
    let mut select = db.prepare_cached(&sql)?;
    let mut rows = select.query(rusqlite::params_from_iter(params))?;
    let mut listing = Listing::default();
    let (mut examined, mut bytes, mut last) = (0, 0, None);
    while let Some(row) = rows.next()? {
        let id = MessageId::new(Timestamp::from_millis(row.get(1)?), row.get(0)?, salt);
        examined += 1;
        if queue.is_none_or(|queue| row.get(5) == Ok(queue)) && matches(row, filter)? {
            // A deleted message has no body any more.
            let erased = row.get(4) == Ok(Some(schema::status_code(Status::Deleted)));
            bytes += if erased { 0 } else { row.get::<_, usize>(6)? };
            if page.body_bytes_max.is_some_and(|max| bytes > max) && !listing.messages.is_empty() {
                listing.next = last;
                break;
            }
            match read::record(db, id, salt, page.body_bytes_max.is_some())? {
                Some(Ok(record)) => listing.messages.push(record),
                Some(Err(damage)) => return Ok(Err(damage)),
                None => {}
            }
        }
        if listing.messages.len() >= page.max || examined >= EXAMINED_MAX {
            listing.next = rows.next()?.is_some().then_some(id);
            break;
        }
        last = Some(id);
    }
    Ok(Ok(listing))
}

fn matches(row: &Row<'_>, filter: &Filter) -> rusqlite::Result<bool> {
    let at = Timestamp::from_millis(row.get(1)?);
    let lane: usize = row.get::<_, i64>(2)?.try_into().unwrap_or(usize::MAX);
    let code: Option<i64> = row.get(4)?;
    let status = code.map_or(Some(Status::Pending), schema::status_of);
    Ok(filter.status.is_none_or(|wanted| status == Some(wanted))
        && (!filter.ended || status != Some(Status::Pending))
        && filter.lane.is_none_or(|wanted| wanted.index() == lane)
        && filter.from.is_none_or(|from| at >= from)
        && filter.to.is_none_or(|to| at < to)
        && match &filter.recipient {
            None => true,
            Some(wanted) => row.get_ref(3)?.as_str_or_null()? == Some(wanted.as_str()),
        })
}

//! Lists of messages, page by page.

use std::sync::LazyLock;

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row};
use tidegate_domain::{Damaged, Filter, Listing, MessageId, Page, Status, Timestamp};

use super::super::rows::{MessageRow, OutcomeRow};
use super::parties::Candidates;
use super::{Parties, as_i64, blocks, checksum, get_meta, read};

/// Rows that one page looks at; what does not fit comes with the next.
const EXAMINED_MAX: usize = if cfg!(test) { 30 } else { 20_000 };

/// The messages among the numbers of the list ?1, in its order.
const OF_CANDIDATES: &str = "json_each(?1) AS candidate
     CROSS JOIN message ON message.seq = candidate.value LEFT JOIN outcome ON outcome.seq = message.seq";

/// Messages that match, oldest first.
pub(in crate::embedded) fn list(
    db: &Connection,
    parties: &Parties,
    filter: &Filter,
    page: &Page,
    salt: u32,
) -> rusqlite::Result<Listing> {
    if page.max == 0 {
        return Ok(Listing { next: page.after, ..Listing::default() });
    }
    let candidates = Candidates::begin(parties, filter);
    // All of it as of one moment: what has ended since is no message that lost its outcome.
    let _snapshot = db.unchecked_transaction()?;
    let queue = match &filter.queue {
        None => None,
        Some(name) => {
            let id: Option<i64> = db
                .prepare_cached("SELECT id FROM queue WHERE name = ?1")?
                .query_row([name.as_str()], |row| row.get(0))
                .optional()?;
            match id {
                None => return Ok(Listing::default()),
                some => some,
            }
        }
    };
    let mut after = page.after.map_or(-1, |id| as_i64(id.seq()));
    let live_from = get_meta(db, "live_from")?.unwrap_or(0);
    if filter.status == Some(Status::Pending) {
        after = after.max(live_from - 1);
    }
    let mut looked_to = None;
    // Parties have runs, dead letters an index of their own, and queues know their blocks; the rest is decided row by row.
    let (from, params) = match (&candidates, filter.status, queue) {
        (Some(candidates), ..) => {
            let (seqs, cut_at) = candidates.seqs(db, filter, after, EXAMINED_MAX)?;
            looked_to = cut_at.map(|seq| MessageId::new(Timestamp::default(), seq, salt));
            (OF_CANDIDATES, vec![Value::Text(format!("{seqs:?}"))])
        }
        (_, Some(Status::Dead), _) => (
            "outcome INDEXED BY dead LEFT JOIN message ON message.seq = outcome.seq
             WHERE status = 2 AND outcome.seq > ?1 ORDER BY outcome.seq",
            vec![after.into()],
        ),
        (.., Some(queue)) => {
            (blocks::MESSAGES_OF_QUEUE, vec![after.into(), queue.into(), blocks::BLOCK.into()])
        }
        _ => (
            "message LEFT JOIN outcome ON outcome.seq = message.seq
             WHERE message.seq > ?1 ORDER BY message.seq",
            vec![after.into()],
        ),
    };
    let mut select = db.prepare_cached(&format!("SELECT {} FROM {from}", *COLUMNS))?;
    let mut rows = select.query(rusqlite::params_from_iter(params))?;
    let mut listing = Listing::default();
    let (mut examined, mut bytes, mut last) = (0, 0, None);
    while let Some(row) = rows.next()? {
        let seq: u64 = row.get(SEQ)?;
        let at = Timestamp::from_millis(row.get(1).unwrap_or_default());
        let id = MessageId::new(at, seq, salt);
        examined += 1;
        // Judged before the filter is: what is damaged may look like something else.
        match seen(row, live_from) {
            Err(problem) => listing.damaged.push(Damaged { id, problem }),
            Ok(seen) if seen.matches(filter, queue) => {
                // A deleted message has no body any more.
                let erased = seen.status() == Status::Deleted;
                bytes += if erased { 0 } else { row.get::<_, usize>(BODY_BYTES)? };
                let fits = page.body_bytes_max.is_none_or(|max| bytes <= max);
                if !fits && !listing.messages.is_empty() {
                    listing.next = last;
                    break;
                }
                match read::record(db, id, salt, page.body_bytes_max.is_some()) {
                    Ok(Some(Ok(record))) => listing.messages.push(record),
                    Ok(Some(Err(problem))) => listing.damaged.push(Damaged { id, problem }),
                    Ok(None) => {}
                    Err(error @ rusqlite::Error::SqliteFailure(..)) => return Err(error),
                    Err(error) => listing.damaged.push(Damaged { id, problem: error.to_string() }),
                }
            }
            Ok(_) => {}
        }
        if listing.messages.len() + listing.damaged.len() >= page.max || examined >= EXAMINED_MAX {
            listing.next = rows.next()?.is_some().then_some(id);
            break;
        }
        last = Some(id);
    }
    // Of a cursor only the number counts.
    listing.next = listing.next.or(looked_to);
    Ok(listing)
}

/// The head of a message, the length of its body, which is known without a look at its pages, and its outcome.
static COLUMNS: LazyLock<String> = LazyLock::new(|| {
    let of = |table: &str, columns: &str| {
        columns.split(", ").map(|column| format!("{table}.{column}")).collect::<Vec<_>>().join(", ")
    };
    let (head, outcome) = (of("message", read::HEAD), of("outcome", read::OUTCOME));
    format!("{head}, length(message.body), {outcome}, coalesce(message.seq, outcome.seq)")
});
const BODY_BYTES: usize = 13;
const OUTCOME: usize = 14;
const SEQ: usize = 21;

/// What a list knows of a message before it reads the rest.
struct Seen {
    message: MessageRow,
    outcome: Option<OutcomeRow>,
}

/// The error says what is damaged.
fn seen(row: &Row<'_>, live_from: i64) -> Result<Seen, String> {
    let (message, sum) = read::head(row).map_err(|error| error.to_string())?;
    if !checksum::head_matches(&message, sum) {
        return Err("the message does not match its checksum".to_owned());
    }
    let ended = row.get_ref(OUTCOME).is_ok_and(|seq| seq != ValueRef::Null);
    if !ended && as_i64(message.seq) < live_from {
        return Err("the message has ended, and its outcome is not there".to_owned());
    }
    let outcome = ended.then(|| read::ended_from(row, OUTCOME)).transpose();
    Ok(Seen { message, outcome: outcome.map_err(|error| error.to_string())? })
}

impl Seen {
    fn status(&self) -> Status {
        self.outcome.as_ref().map_or(Status::Pending, |outcome| outcome.status)
    }

    fn matches(&self, filter: &Filter, queue: Option<i64>) -> bool {
        let MessageRow { queue: of, at, lane, recipient, charge, .. } = &self.message;
        let user = charge.as_ref().map(|charge| &charge.user);
        let status = self.status();
        queue.is_none_or(|queue| queue == i64::from(*of))
            && filter.status.is_none_or(|wanted| status == wanted)
            && (!filter.ended || status != Status::Pending)
            && filter.lane.is_none_or(|wanted| wanted == *lane)
            && filter.from.is_none_or(|from| *at >= from)
            && filter.to.is_none_or(|to| *at < to)
            && filter.user.as_ref().is_none_or(|wanted| user == Some(wanted))
            && filter.recipient.as_ref().is_none_or(|wanted| recipient.as_ref() == Some(wanted))
    }
}

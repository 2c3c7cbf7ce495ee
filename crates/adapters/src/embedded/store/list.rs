//! Lists of messages, page by page.

use std::sync::LazyLock;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row};
use tidegate_domain::{Damaged, Filter, Listing, MessageId, Page, Status, Timestamp};

use super::super::rows::{MessageRow, OutcomeRow};
use super::parties::Candidates;
use super::{Parties, as_i64, checksum, gaps, get_meta, read};

mod source;

use source::Source;

/// Rows that one page looks at; what does not fit comes with the next.
const EXAMINED_MAX: usize = if cfg!(test) { 30 } else { 20_000 };

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
    let source = match (&candidates, filter.status, queue) {
        (Some(candidates), ..) => {
            let (seqs, cut_at) = candidates.seqs(db, filter, after, EXAMINED_MAX)?;
            looked_to = cut_at.map(|seq| MessageId::new(Timestamp::default(), seq, salt));
            Source::Candidates(seqs)
        }
        (_, Some(Status::Dead), _) => Source::Dead,
        (.., Some(queue)) => Source::Queue(queue),
        _ => Source::All,
    };
    let (listing, last) = (Listing::default(), None);
    let (examined, bytes, reached) = (0, 0, after);
    let mut scan = Scan { db, filter, page, salt, queue, live_from, listing, examined, bytes, reached, last };
    scan.run(&source)?;
    // Of a cursor only the number counts.
    let listing = scan.listing;
    Ok(Listing { next: listing.next.or(looked_to), ..listing })
}

/// One page in the making.
struct Scan<'a> {
    db: &'a Connection,
    filter: &'a Filter,
    page: &'a Page,
    salt: u32,
    queue: Option<i64>,
    live_from: i64,
    listing: Listing,
    examined: usize,
    bytes: usize,
    /// The last number that was looked at.
    reached: i64,
    last: Option<MessageId>,
}

impl Scan<'_> {
    /// A row that can't be read, or the numbers of a whole page of them, are named, and the list goes on behind them.
    fn run(&mut self, source: &Source) -> rusqlite::Result<()> {
        loop {
            let error = match self.rows(source) {
                Err(error) if gaps::is_damage(&error) => error,
                done => return done,
            };
            let Some((first, last)) = source.unreadable_after(self.db, self.reached)? else { return Ok(()) };
            let id = MessageId::new(Timestamp::default(), u64::try_from(last).unwrap_or_default(), self.salt);
            let problem = if first == last {
                format!("message {first} can't be read: {error}")
            } else {
                format!("messages {first} to {last} can't be read: {error}")
            };
            self.listing.damaged.push(Damaged { id, problem });
            self.examined += 1;
            (self.reached, self.last) = (last, Some(id));
            if self.is_full() {
                self.listing.next = Some(id);
                return Ok(());
            }
        }
    }

    fn rows(&mut self, source: &Source) -> rusqlite::Result<()> {
        let (from, params) = source.query(self.reached);
        let mut select = self.db.prepare_cached(&format!("SELECT {} FROM {from}", *COLUMNS))?;
        let mut rows = select.query(rusqlite::params_from_iter(params))?;
        while let Some(row) = rows.next()? {
            let seq: u64 = row.get(SEQ)?;
            let at = Timestamp::from_millis(row.get(1).unwrap_or_default());
            let id = MessageId::new(at, seq, self.salt);
            self.examined += 1;
            if !self.take(row, id)? {
                self.listing.next = self.last;
                return Ok(());
            }
            if self.is_full() {
                // What can't be read is something, too.
                let is_more = rows.next().map_or_else(|error| gaps::is_damage(&error), |row| row.is_some());
                self.listing.next = is_more.then_some(id);
                return Ok(());
            }
            (self.reached, self.last) = (as_i64(seq), Some(id));
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        let Listing { messages, damaged, .. } = &self.listing;
        messages.len() + damaged.len() >= self.page.max || self.examined >= EXAMINED_MAX
    }

    /// False when the page has no room for it.
    fn take(&mut self, row: &Row<'_>, id: MessageId) -> rusqlite::Result<bool> {
        // Judged before the filter is: what is damaged may look like something else.
        let seen = match seen(row, self.live_from) {
            Err(problem) => {
                self.listing.damaged.push(Damaged { id, problem });
                return Ok(true);
            }
            Ok(seen) if !seen.matches(self.filter, self.queue) => return Ok(true),
            Ok(seen) => seen,
        };
        // A deleted message has no body any more.
        let erased = seen.status() == Status::Deleted;
        let body_bytes = if erased { 0 } else { row.get::<_, usize>(BODY_BYTES)? };
        if !self.fits(body_bytes) {
            return Ok(false);
        }
        let problem = match read::record(self.db, id, self.salt, self.page.body_bytes_max.is_some()) {
            Ok(Some(Ok(record))) => {
                let bytes = record.text_bytes();
                if !self.fits(bytes) {
                    return Ok(false);
                }
                self.bytes += bytes;
                self.listing.messages.push(record);
                return Ok(true);
            }
            Ok(None) => return Ok(true),
            Ok(Some(Err(problem))) => problem,
            Err(error @ rusqlite::Error::SqliteFailure(..)) if !gaps::is_damage(&error) => return Err(error),
            Err(error) => error.to_string(),
        };
        self.listing.damaged.push(Damaged { id, problem });
        Ok(true)
    }

    /// One message always does.
    fn fits(&self, bytes: usize) -> bool {
        let within = |max| self.bytes.saturating_add(bytes) <= max;
        self.listing.messages.is_empty() || self.page.body_bytes_max.is_none_or(within)
    }
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

//! Texts that go for good: from the rows with the commit that deletes them, and from the WAL soon after.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};
use tidegate_domain::Timestamp;

use super::read::HEAD;
use super::write::headers_text;
use super::{Store, StoreError, as_i64, checksum, read};

/// How long the WAL may hold a text after it was erased, unless a look-up is still reading there. Each time costs a
/// checkpoint, and a WAL that has to grow anew.
const REMNANTS_MS: u64 = 1_000;
/// How much later a checkpoint that met a look-up is tried again.
const AGAIN_MS: u64 = 200;
/// How long it waits for look-ups then, longer each time, up to a bound: nothing is written meanwhile.
const WAIT_MS: u64 = 10;
const WAIT_MS_MAX: u64 = 250;
/// As rusqlite sets it for a new connection.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Copies of erased texts that the WAL may hold.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Remnants {
    due: Timestamp,
    tried: u32,
}

/// Overwrites bodies and headers where they stand. A row keeps its length, so SQLite writes over it in place, and no page
/// is divided or put together.
pub(super) fn write(db: &Connection, seqs: &[u64]) -> rusqlite::Result<()> {
    if seqs.is_empty() {
        return Ok(());
    }
    // The checksum of the body goes, too: by it, a text could be guessed. That of the head stays.
    let mut plain = db.prepare_cached(
        "UPDATE message SET body = zeroblob(length(body)), checksum = checksum & -4294967296
         WHERE seq = ?1 AND headers IS NULL",
    )?;
    for seq in seqs {
        if plain.execute([as_i64(*seq)])? == 0 {
            with_headers(db, *seq)?;
        }
    }
    Ok(())
}

fn with_headers(db: &Connection, seq: u64) -> rusqlite::Result<()> {
    let select = format!("SELECT {HEAD}, octet_length(headers) FROM message WHERE seq = ?1");
    let found = db
        .prepare_cached(&select)?
        .query_row([as_i64(seq)], |row| Ok((read::head(row).ok(), row.get::<_, i64>(9)?, row.get(13)?)))
        .optional()?;
    let Some((head, sum, bytes)) = found else { return Ok(()) };
    let (text, sum) = match head {
        Some((mut message, sum)) if checksum::head_matches(&message, sum) => {
            message.headers = message.headers.erased();
            (padded(headers_text(&message.headers), bytes), checksum::of_head_alone(&message))
        }
        // What is damaged stays known as such.
        _ => (padded(None, bytes), sum & !0xffff_ffff),
    };
    db.prepare_cached(
        "UPDATE message SET body = zeroblob(length(body)), headers = ?2, checksum = ?3 WHERE seq = ?1",
    )?
    .execute(params![as_i64(seq), text, sum])?;
    Ok(())
}

/// JSON that takes as many bytes as before.
fn padded(text: Option<String>, bytes: usize) -> String {
    let mut text = text.unwrap_or_else(|| "[]".to_owned());
    text.extend(std::iter::repeat_n(' ', bytes.saturating_sub(text.len())));
    text
}

impl Store {
    /// Texts have gone from the rows. What the WAL has of them goes later, for all of a while at once.
    pub(super) fn note_remnants(&mut self, now: Timestamp) {
        let due = now.plus_ms(REMNANTS_MS);
        self.remnants.get_or_insert(Remnants { due, tried: 0 });
    }

    /// Moves the WAL into the database and cuts it to nothing, when it may hold what was erased.
    pub(in crate::embedded) fn clear_remnants(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let Some(Remnants { tried, .. }) = self.remnants.filter(|remnants| remnants.due <= now) else {
            return Ok(());
        };
        let wait_ms = u64::from(tried).saturating_mul(WAIT_MS).min(WAIT_MS_MAX);
        self.connection.busy_timeout(Duration::from_millis(wait_ms)).map_err(|e| self.error(e))?;
        let cleared = self.checkpoint_last(now);
        self.connection.busy_timeout(BUSY_TIMEOUT).map_err(|e| self.error(e))?;
        self.remnants = if cleared? {
            None
        } else {
            Some(Remnants { due: now.plus_ms(AGAIN_MS), tried: tried.saturating_add(1) })
        };
        Ok(())
    }
}

//! How what is claimed gets its texts.

use hashbrown::HashMap;
use tidegate_domain::{Claim, LedgerError, MessageId, QueueName};

use super::Embedded;
use super::claims::{Hold, hold};
use super::engine::ClaimedRow;
use super::rows::MessageRow;
use super::store::read::StoredMessage;

/// Texts from disk, and why there are none of some.
#[derive(Debug, Default)]
struct Stored {
    found: HashMap<u64, StoredMessage>,
    failed: HashMap<u64, LedgerError>,
}

impl Embedded {
    /// Fetches the texts that are no longer in memory, and puts the claims together. The second are those that can't
    /// be read.
    pub(super) async fn with_texts(
        &self,
        queue: QueueName,
        rows: Vec<ClaimedRow>,
    ) -> Result<(Vec<Claim>, Vec<(Hold, LedgerError)>), LedgerError> {
        let mut stored = self.stored(&rows).await?;
        let salt = self.readers.salt();
        let (mut claims, mut unread) = (Vec::with_capacity(rows.len()), Vec::new());
        for row in rows {
            let seq = row.leased.seq;
            let hold = hold(&row);
            let (message, body_sound) = match row.message {
                Some(message) => (message, true),
                None => match stored.take(seq) {
                    Ok(sound) => sound,
                    Err(error) => {
                        unread.push((hold, error));
                        continue;
                    }
                },
            };
            let MessageRow { at, lane, recipient, charge, body, headers, ack_required, .. } = message;
            claims.push(Claim {
                id: MessageId::new(at, seq, salt),
                queue: queue.clone(),
                recipient,
                lane,
                user: charge.map(|charge| charge.user),
                admitted_at: at,
                attempt: row.leased.attempt,
                failures: row.leased.failures,
                ack_attempts: row.leased.ack_attempts,
                ack_required,
                headers,
                token: row.leased.token,
                lease_until: row.leased.until,
                body: body_sound.then_some(body),
            });
        }
        Ok((claims, unread))
    }

    async fn stored(&self, rows: &[ClaimedRow]) -> Result<Stored, LedgerError> {
        let missing = || rows.iter().filter(|row| row.message.is_none()).map(|row| &row.leased);
        let first = missing().filter(|leased| leased.attempt == 1).map(|leased| leased.seq);
        let mut stored = Stored { found: self.readers.ahead().take(first), ..Stored::default() };
        let mut seqs: Vec<_> = missing().map(|leased| leased.seq).collect();
        seqs.retain(|seq| !stored.found.contains_key(seq));
        if seqs.is_empty() {
            return Ok(stored);
        }
        seqs.sort_unstable();
        let found = match self.readers.messages(seqs.clone()).await {
            Ok(found) => found,
            // Only some of them may be to blame, and the others are not to wait for those.
            Err(LedgerError::Corrupt(_) | LedgerError::Unavailable(_)) => {
                let (found, failed) = self.readers.messages_singly(seqs).await?;
                stored.failed.extend(failed);
                found
            }
            Err(error) => return Err(error),
        };
        stored.found.extend(found.into_iter().map(|found| (found.row.seq, found)));
        Ok(stored)
    }
}

impl Stored {
    /// A message as it was written, and whether its body is.
    fn take(&mut self, seq: u64) -> Result<(MessageRow, bool), LedgerError> {
        if let Some(error) = self.failed.remove(&seq) {
            return Err(error);
        }
        let corrupt = |what: &str| LedgerError::Corrupt(format!("message {seq} {what}"));
        let stored = self.found.remove(&seq).ok_or_else(|| corrupt("has no row"))?;
        if stored.head_sound {
            Ok((stored.row, stored.body_sound))
        } else {
            Err(corrupt("does not match its checksum"))
        }
    }
}

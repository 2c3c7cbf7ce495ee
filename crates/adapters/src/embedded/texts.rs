//! How what is claimed gets its texts.

use hashbrown::HashMap;
use tidegate_domain::{Claim, Ledger, LedgerError, MessageId, Outcome, QueueName, Settlement};

use super::Embedded;
use super::engine::ClaimedRow;
use super::rows::MessageRow;
use super::store::read::StoredMessage;

impl Embedded {
    /// Fetches the texts that are no longer in memory, and puts the claims together.
    pub(super) async fn with_texts(
        &self,
        queue: QueueName,
        rows: Vec<ClaimedRow>,
    ) -> Result<Vec<Claim>, LedgerError> {
        let mut stored = self.stored(&rows).await?;
        let salt = self.readers.salt();
        let claim = |row: ClaimedRow| {
            let seq = row.leased.seq;
            let (message, body_sound) = match row.message {
                Some(message) => (message, true),
                None => sound(seq, stored.remove(&seq))?,
            };
            let MessageRow { at, lane, recipient, charge, body, headers, ack_required, .. } = message;
            Ok(Claim {
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
            })
        };
        rows.into_iter().map(claim).collect()
    }

    async fn stored(&self, rows: &[ClaimedRow]) -> Result<HashMap<u64, StoredMessage>, LedgerError> {
        let missing = || rows.iter().filter(|row| row.message.is_none()).map(|row| &row.leased);
        let first = missing().filter(|leased| leased.attempt == 1).map(|leased| leased.seq);
        let mut stored = self.readers.ahead().take(first);
        let mut seqs: Vec<_> = missing().map(|leased| leased.seq).collect();
        seqs.retain(|seq| !stored.contains_key(seq));
        if !seqs.is_empty() {
            seqs.sort_unstable();
            let found = self.readers.messages(seqs).await?;
            stored.extend(found.into_iter().map(|found| (found.row.seq, found)));
        }
        Ok(stored)
    }

    /// Hands claims back whose texts could not be read.
    pub(super) async fn hand_back(&self, leases: Vec<(u64, u64)>) {
        let release = |(seq, token)| Settlement {
            // A settlement looks at the sequence number and the salt alone: the time may be on the unread page.
            id: MessageId::new(tidegate_domain::Timestamp::default(), seq, self.readers.salt()),
            token,
            outcome: Outcome::Released,
            latency_ms: 0,
        };
        if let Err(error) = self.settle(leases.into_iter().map(release).collect()).await {
            tracing::warn!(%error, "claims that could not be read wait for their leases to end");
        }
    }
}

/// A message as it was written, and whether its body is.
fn sound(seq: u64, stored: Option<StoredMessage>) -> Result<(MessageRow, bool), LedgerError> {
    let stored = stored.ok_or_else(|| LedgerError::Corrupt(format!("message {seq} has no row")))?;
    if !stored.head_sound {
        return Err(LedgerError::Corrupt(format!("message {seq} does not match its checksum")));
    }
    Ok((stored.row, stored.body_sound))
}

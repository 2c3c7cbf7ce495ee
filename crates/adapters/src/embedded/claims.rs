//! Claims on their way to whoever asked: with their texts, or back into the line.

use tidegate_domain::{
    Advanced, Claim, ClaimRequest, LedgerError, MessageId, Outcome, QueueName, Settlement, Timestamp,
};

use super::Embedded;
use super::book::UNREADABLE_MS;
use super::engine::{Change, Claimed, ClaimedRow, Step, Way};
use super::writer::{Answer, Command, Reply};

/// A message by its number, and the token of its lease.
pub(super) type Hold = (u64, u64);

/// The writer's answer to a claim. Given up, it hands back what it may have brought.
struct Awaited<'a> {
    ledger: &'a Embedded,
    answer: Answer<Claimed>,
}

/// Leases that nobody has been told of. What is left of them when they are dropped is handed back untried.
struct Untold<'a> {
    ledger: &'a Embedded,
    holds: Vec<Hold>,
}

impl Embedded {
    pub(super) async fn claim_texts(
        &self,
        request: ClaimRequest,
        way: Way,
    ) -> Result<Vec<Claim>, LedgerError> {
        let queue = request.queue.clone();
        self.leased_texts(queue, |reply| Command::Claim(request, way, reply)).await
    }

    /// What a command leases, with texts.
    pub(super) async fn leased_texts(
        &self,
        queue: QueueName,
        command: impl FnOnce(Reply<Claimed>) -> Command,
    ) -> Result<Vec<Claim>, LedgerError> {
        let answer = self.send(command)?;
        let Claimed { rows, upcoming } = Awaited { ledger: self, answer }.wait().await?;
        let mut untold = Untold { ledger: self, holds: rows.iter().map(hold).collect() };
        let (claims, unread) = self.with_texts(queue, rows).await?;
        untold.holds.clear();
        self.readers.read_ahead(upcoming);
        // The others of the queue need not wait for it, so it is put off; it has not been tried.
        self.settle_unheard(unread.iter().map(|(hold, _)| *hold), &Outcome::Held { for_ms: UNREADABLE_MS });
        let mut errors = unread.into_iter().map(|(_, error)| error);
        let told = if claims.is_empty() { errors.next() } else { None };
        for error in errors {
            tracing::error!(%error, "a message is set aside for a while");
        }
        told.map_or(Ok(claims), Err)
    }

    /// Puts the texts to the messages that come next. A message whose text can't be read is handed back: a claim will
    /// find that out again, and say so.
    pub(super) async fn advanced(&self, steps: Vec<Step>) -> Vec<Advanced> {
        let rows = steps.iter().filter_map(|step| step.next.as_ref()).map(|(_, row)| hold(row));
        let mut untold = Untold { ledger: self, holds: rows.collect() };
        let mut advanced = Vec::with_capacity(steps.len());
        for Step { settled, next, .. } in steps {
            let next = match next {
                None => None,
                Some((queue, row)) => {
                    let hold = hold(&row);
                    let claim =
                        self.with_texts(queue, vec![row]).await.ok().and_then(|(mut claims, _)| claims.pop());
                    untold.holds.retain(|held| claim.is_none() || *held != hold);
                    claim
                }
            };
            advanced.push(Advanced { settled, next });
        }
        advanced
    }

    /// Nobody waits for the answer. When there is no room for the command, the leases end by themselves.
    fn settle_unheard(&self, holds: impl Iterator<Item = Hold>, outcome: &Outcome) {
        let settlement = |(seq, token)| Settlement {
            // A settlement looks at the sequence number and the salt alone: the time may be on an unread page.
            id: MessageId::new(Timestamp::default(), seq, self.readers.salt()),
            token,
            outcome: outcome.clone(),
            latency_ms: 0,
        };
        let batch: Vec<_> = holds.map(settlement).collect();
        if batch.is_empty() {
            return;
        }
        let count = batch.len();
        if let Err(error) = self.send(|reply| Command::Change(Change::Settle(batch), reply)) {
            tracing::warn!(%error, count, "claims that nobody got wait for their leases to end");
        }
    }
}

impl Awaited<'_> {
    async fn wait(mut self) -> Result<Claimed, LedgerError> {
        (&mut self.answer).await.unwrap_or_else(|_| Err(super::stopped()))
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        // From here on the writer notices by itself that nobody listens.
        self.answer.close();
        if let Ok(Ok(claimed)) = self.answer.try_recv() {
            self.ledger.settle_unheard(claimed.rows.iter().map(hold), &Outcome::Released);
        }
    }
}

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        self.ledger.settle_unheard(self.holds.drain(..), &Outcome::Released);
    }
}

pub(super) fn hold(row: &ClaimedRow) -> Hold {
    (row.leased.seq, row.leased.token)
}

//! What people and consumers do to single messages.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_domain::{Extension, LedgerError, MessageId, Requeue, Requeued, Settled, Status};

use crate::batch::Operation;
use crate::codes::{bounded, checksum, duration, limit, nonsense, status};
use crate::open::Core;

#[derive(Debug)]
pub struct Extensions(pub Arc<Core>);

/// Acks, or cancellations.
#[derive(Debug)]
pub struct Ending {
    pub core: Arc<Core>,
    pub acked: bool,
}

/// What an ack or a cancellation found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    Done,
    UnderWay,
    Sent,
    NotAccepted,
    Ended(Status),
    Unknown,
}

#[async_trait]
impl Operation for Extensions {
    type Item = Extension;
    type Answer = Settled;

    async fn run(&self, items: Vec<Extension>) -> Result<Vec<Settled>, LedgerError> {
        let (seqs, times): (Vec<_>, Vec<_>) = items.iter().map(|item| self.0.parts(item.id)).unzip();
        let tokens: Vec<_> = items.iter().map(|item| item.token.cast_signed()).collect();
        let leases: Vec<_> = items.iter().map(|item| duration(item.lease_ms)).collect();
        let sql = "SELECT place FROM extend($1, $2, $3, $4)";
        let rows = self.0.write(sql, &[&seqs, &times, &tokens, &leases]).await?;
        let mut settled = vec![Settled::LostLease; items.len()];
        for row in rows {
            let place = usize::try_from(row.get::<_, i32>(0)).unwrap_or_default();
            if let Some(settled) = settled.get_mut(place.wrapping_sub(1)) {
                *settled = Settled::Done;
            }
        }
        Ok(settled)
    }
}

#[async_trait]
impl Operation for Ending {
    type Item = MessageId;
    type Answer = Found;

    async fn run(&self, ids: Vec<MessageId>) -> Result<Vec<Found>, LedgerError> {
        let (seqs, times): (Vec<_>, Vec<_>) = ids.iter().map(|id| self.core.parts(*id)).unzip();
        let sql = "SELECT answer, status FROM end_by_hand($1, $2, $3)";
        let rows = self.core.write(sql, &[&seqs, &times, &self.acked]).await?;
        self.core.wakes.wake_all();
        let found = rows.iter().map(|row| {
            Ok(match row.get::<_, i16>(0) {
                0 => Found::Done,
                1 => Found::UnderWay,
                2 => Found::NotAccepted,
                3 => Found::Ended(status(row.get(1))?),
                4 => Found::Unknown,
                5 => Found::Sent,
                code => return Err(nonsense("answer", code)),
            })
        });
        found.collect()
    }
}

impl Core {
    pub async fn requeue(&self, batch: Vec<Requeue>) -> Result<Vec<Requeued>, LedgerError> {
        let (seqs, times): (Vec<_>, Vec<_>) = batch.iter().map(|item| self.parts(item.id)).unzip();
        let delays: Vec<_> = batch.iter().map(|item| duration(item.delay_ms)).collect();
        let bodies: Vec<_> = batch.iter().map(|item| item.body.as_deref()).collect();
        let checksums: Vec<_> = bodies.iter().map(|body| body.map(checksum)).collect();
        let (mut names, mut maxima, mut hard_maxima) = (Vec::new(), Vec::new(), Vec::new());
        let named = self.options.queue_rules.iter().map(|(name, rule)| (name.as_str(), rule));
        // One without a limit is named too, or else the rule of all others would be its own.
        for (name, rule) in named.chain([("", &self.options.queue_rule)]) {
            names.push(name);
            maxima.push(limit(rule.pending_max));
            hard_maxima.push(bounded(rule.pending_hard_max));
        }
        let (pending_max, pending_spare) = self.options.room();
        let rows = self
            .write(
                "SELECT answer FROM requeue($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
                &[
                    &seqs,
                    &times,
                    &delays,
                    &bodies,
                    &checksums,
                    &names,
                    &maxima,
                    &hard_maxima,
                    &pending_max,
                    &pending_spare,
                ],
            )
            .await?;
        self.wakes.wake_all();
        let requeued = rows.iter().map(|row| match row.get::<_, i16>(0) {
            0 => Ok(Requeued::Requeued),
            1 => Ok(Requeued::NotDead),
            2 => Ok(Requeued::Full),
            3 => Ok(Requeued::Expired),
            4 => Ok(Requeued::QueueFull),
            code => Err(nonsense("answer", code)),
        });
        requeued.collect()
    }

    pub async fn delete_dead(&self, ids: Vec<MessageId>) -> Result<Vec<bool>, LedgerError> {
        let parts: Vec<_> = ids.iter().map(|id| self.parts(*id)).collect();
        let (seqs, times): (Vec<_>, Vec<_>) = parts.iter().copied().unzip();
        let rows = self.write("SELECT seq, ms FROM delete_dead($1, $2)", &[&seqs, &times]).await?;
        let mut deleted: BTreeSet<(i64, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        // The second of the same finds it gone.
        Ok(parts.iter().map(|parts| deleted.remove(parts)).collect())
    }
}

use std::collections::BTreeSet;

use anyhow::ensure;
use tidegate_domain::{
    Claim, Extension, Filter, Lane, Ledger, MessageId, MessageRecord, Page, PickUp, Queues, Recipient,
    Requeue, Status, Timestamp,
};

use super::op::Op;
use super::pair::{Pair, agree, without_expiry_time};
use crate::conformance::{queue, user as user_id};

/// More pages than any sequence fills: a list that goes on for longer goes round in circles.
const PAGES_MAX: usize = 1_000;
/// Small, so that pages end by their bytes too.
const LIST_BYTES_MAX: usize = 30;

#[derive(Debug, Clone)]
pub enum QueueOp {
    Pop {
        queue: u8,
        max: usize,
    },
    PickUp {
        queue: u8,
        recipients: Vec<u8>,
        max: usize,
        lease_ms: u64,
    },
    Extend {
        /// Counted back from the latest lease handed out.
        lease_back: usize,
        lease_ms: u64,
    },
    Ack(Vec<Pick>),
    Cancel(Vec<Pick>),
    /// With another text or not, due so much later.
    Requeue(Vec<(Pick, Option<u8>, u64)>),
    DeleteDead(Vec<Pick>),
    Purge {
        queue: u8,
    },
    Pause {
        queue: u8,
        paused: bool,
    },
    List {
        queue: Option<u8>,
        status: Option<Status>,
        ended: bool,
        recipient: Option<u8>,
        user: Option<u8>,
        lane: Option<Lane>,
        /// Admitted from the n-th message on, and before the m-th.
        from: Option<usize>,
        to: Option<usize>,
        max: usize,
    },
}

/// Which message: the n-th of those that the model knows to be so, or of all.
#[derive(Debug, Clone, Copy)]
pub struct Pick {
    pub status: Option<Status>,
    pub n: usize,
}

impl Pair<'_> {
    pub(super) async fn apply_queues(&mut self, op: &QueueOp) -> anyhow::Result<()> {
        let (queues, model) = (self.subject.queues(), self.model);
        match op {
            QueueOp::Pop { queue, max } => {
                let queue = named(*queue);
                let ours = queues.pop(queue.clone(), *max, 0).await?;
                let theirs = model.pop(queue, *max, 0).await?;
                let tokens: BTreeSet<_> = ours.iter().map(|claim| claim.token).collect();
                ensure!(tokens.len() == ours.len(), "a token was given twice: {ours:?}");
                let ours = without_leases(self.as_model_claims(&ours, &theirs));
                agree(&ours, &without_leases(theirs))
            }
            QueueOp::PickUp { queue, recipients, max, lease_ms } => {
                let recipients = recipients.iter().map(|n| Recipient::new(&format!("recipient{n}")));
                let recipients = recipients.collect::<Result<_, _>>()?;
                let request = PickUp { queue: named(*queue), recipients, max: *max, lease_ms: *lease_ms };
                let ours = queues.pick_up(request.clone()).await?;
                let theirs = model.pick_up(request).await?;
                self.leased(&ours, &theirs)
            }
            QueueOp::Extend { lease_back, lease_ms } => {
                let Some(place) = self.leases.len().checked_sub(1 + lease_back) else { return Ok(()) };
                let [ours, theirs] = self.leases[place];
                let extension =
                    |(id, token): (MessageId, u64)| vec![Extension { id, token, lease_ms: *lease_ms }];
                agree(&queues.extend(extension(ours)).await?, &model.extend(extension(theirs)).await?)
            }
            QueueOp::Ack(picks) => {
                let (ours, theirs) = self.pick_all(picks).await?;
                agree(&queues.ack(ours).await?, &model.ack(theirs).await?)
            }
            QueueOp::Cancel(picks) => {
                let (ours, theirs) = self.pick_all(picks).await?;
                agree(&queues.cancel(ours).await?, &model.cancel(theirs).await?)
            }
            QueueOp::DeleteDead(picks) => {
                let (ours, theirs) = self.pick_all(picks).await?;
                agree(&queues.delete_dead(ours).await?, &model.delete_dead(theirs).await?)
            }
            QueueOp::Requeue(batch) => self.requeue(batch).await,
            QueueOp::Purge { queue } => {
                let queue = named(*queue);
                agree(&queues.purge(queue.clone()).await?, &model.purge(queue).await?)
            }
            QueueOp::Pause { queue, paused } => {
                let queue = named(*queue);
                agree(&queues.pause(queue.clone(), *paused).await?, &model.pause(queue, *paused).await?)
            }
            QueueOp::List { queue, status, ended, recipient, user, lane, from, to, max } => {
                let recipient = recipient.map(|n| Recipient::new(&format!("recipient{n}"))).transpose()?;
                let filter = Filter {
                    queue: queue.map(named),
                    status: *status,
                    ended: *ended,
                    recipient,
                    user: user.map(|n| user_id(&format!("user{n}"))),
                    lane: *lane,
                    from: self.admitted_at(*from).await?,
                    to: self.admitted_at(*to).await?,
                };
                self.compare_list(&filter, *max).await
            }
        }
    }

    /// Everything there is, and every dead letter.
    pub(super) async fn compare_lists(&self) -> anyhow::Result<()> {
        for status in [None, Some(Status::Dead), Some(Status::Pending)] {
            self.compare_list(&Filter { status, ..Filter::default() }, 7).await?;
        }
        Ok(())
    }

    /// Pages may be cut differently; put together they are the same.
    async fn compare_list(&self, filter: &Filter, max: usize) -> anyhow::Result<()> {
        self.subject.ledger().sweep().await?;
        self.model.sweep().await?;
        let ours = all_pages(&*self.subject.queues(), filter, max).await?;
        let ours: Vec<_> = ours.into_iter().map(|record| self.as_model_record(record)).collect();
        let theirs = all_pages(self.model, filter, max).await?;
        agree(&ours, &theirs.into_iter().map(without_expiry_time).collect())
    }

    async fn requeue(&mut self, batch: &[(Pick, Option<u8>, u64)]) -> anyhow::Result<()> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for (pick, body, delay_ms) in batch {
            let Some((our_id, their_id)) = self.pick(*pick).await? else { continue };
            let body = body.map(|body| format!("edited{body}").into());
            let requeue = Requeue { id: our_id, body, delay_ms: *delay_ms };
            theirs.push(Requeue { id: their_id, ..requeue.clone() });
            ours.push(requeue);
        }
        agree(&self.subject.queues().requeue(ours).await?, &self.model.requeue(theirs).await?)
    }

    async fn pick_all(&self, picks: &[Pick]) -> anyhow::Result<(Vec<MessageId>, Vec<MessageId>)> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for pick in picks {
            if let Some((our_id, their_id)) = self.pick(*pick).await? {
                ours.push(our_id);
                theirs.push(their_id);
            }
        }
        Ok((ours, theirs))
    }

    async fn pick(&self, pick: Pick) -> anyhow::Result<Option<(MessageId, MessageId)>> {
        let mut known = Vec::new();
        for ids in &self.ids {
            let record = self.model.message(ids.1).await?;
            let status = record.map(|record| record.status);
            if pick.status.is_none_or(|wanted| status == Some(wanted)) {
                known.push(*ids);
            }
        }
        // The latest first: small numbers are then mostly about what is going on.
        Ok(if known.is_empty() { None } else { Some(known[known.len() - 1 - pick.n % known.len()]) })
    }

    async fn admitted_at(&self, place: Option<usize>) -> anyhow::Result<Option<Timestamp>> {
        let Some((_, id)) = place.and_then(|place| self.ids.get(place)) else { return Ok(None) };
        Ok(self.model.message(*id).await?.map(|record| record.admitted_at))
    }
}

impl From<QueueOp> for Op {
    fn from(op: QueueOp) -> Self {
        Self::Queues(op)
    }
}

async fn all_pages(queues: &dyn Queues, filter: &Filter, max: usize) -> anyhow::Result<Vec<MessageRecord>> {
    let (mut all, mut after) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let listing =
            queues.list(filter.clone(), Page { max, body_bytes_max: Some(LIST_BYTES_MAX), after }).await?;
        ensure!(listing.messages.len() <= max, "{} messages instead of {max}", listing.messages.len());
        all.extend(listing.messages);
        after = listing.next;
        if after.is_none() {
            return Ok(all);
        }
    }
    anyhow::bail!("the list does not end")
}

fn named(number: u8) -> tidegate_domain::QueueName {
    queue(&format!("queue{number}"))
}

/// Popped messages are nobody's lease.
fn without_leases(claims: Vec<Claim>) -> Vec<Claim> {
    claims.into_iter().map(|claim| Claim { token: 0, lease_until: Timestamp::default(), ..claim }).collect()
}

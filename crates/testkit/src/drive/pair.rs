use anyhow::{Context, ensure};
use tidegate_domain::limits::{Quota, QuotaRule};
use tidegate_domain::{
    Admitted, Advanced, Claim, ClaimRequest, Clock, Due, Ledger, MessageId, MessageRecord, OnLimit, Queues,
    Settlement, Status, Timestamp,
};

use super::op::{Admit, Op, Settle};
use crate::conformance::{Draft, sms};
use crate::{Harness, ModelLedger};

/// The two ledgers, and which of their messages and leases are the same.
#[derive(Debug)]
pub struct Pair<'a> {
    pub(super) subject: &'a Harness,
    pub(super) model: &'a ModelLedger,
    /// In admission order: the subject's id, the model's id.
    pub(super) ids: Vec<(MessageId, MessageId)>,
    /// In the order they were handed out.
    pub(super) leases: Vec<[(MessageId, u64); 2]>,
    /// Both sweep after each operation.
    pub(super) sweeps_always: bool,
}

/// An answer with the message's place in admission order instead of its id.
#[derive(Debug, PartialEq)]
enum Answer {
    Admitted { place: usize, at: Timestamp, quota: Option<Quota> },
    Deferred { place: usize, at: Timestamp, due: Timestamp, quota: Quota },
    Duplicate { place: usize, at: Timestamp },
    KeyConflict { place: usize },
    Refused(Admitted),
}

impl<'a> Pair<'a> {
    pub fn new(subject: &'a Harness, model: &'a ModelLedger) -> Self {
        Self { subject, model, ids: Vec::new(), leases: Vec::new(), sweeps_always: false }
    }

    pub async fn apply(&mut self, op: &Op) -> anyhow::Result<()> {
        match op {
            Op::Admit(batch) => self.admit(batch).await?,
            Op::Claim { queue, max, lease_ms } => self.claim(*queue, *max, *lease_ms).await?,
            Op::Settle(batch) => self.settle(batch).await?,
            Op::Advance { batch, lease_ms } => self.advance(batch, *lease_ms).await?,
            Op::AdvanceMs(ms) => self.subject.clock.advance_ms(*ms),
            Op::PutQuota { user, limit, window_ms, exempts_high } => {
                let (limit, window_ms, exempts_high) = (*limit, *window_ms, *exempts_high);
                let rule = QuotaRule { limit, window_ms, exempts_high };
                let user = crate::conformance::user(&format!("user{user}"));
                let ours = self.subject.ledger().set_quota(user.clone(), rule).await?;
                agree(&ours, &self.model.set_quota(user, rule).await?)?;
            }
            Op::DeleteQuota { user } => {
                let user = crate::conformance::user(&format!("user{user}"));
                let ours = self.subject.ledger().delete_quota(user.clone()).await?;
                agree(&ours, &self.model.delete_quota(user).await?)?;
            }
            Op::ListQuotas { max } => {
                let ours = self.subject.ledger().quotas(None, *max).await?;
                agree(&ours, &self.model.quotas(None, *max).await?)?;
            }
            Op::Slots(op) => self.apply_slots(op).await?,
            Op::Queues(op) => self.apply_queues(op).await?,
            Op::Transit(op) => self.apply_transit(op).await?,
            Op::Reopen => {
                self.subject.reopen().await?;
                self.model.restart();
            }
            Op::Sweep => self.sweep().await?,
        }
        if self.sweeps_always {
            self.sweep().await?;
            return self.compare_books(&Op::Sweep).await;
        }
        self.compare_books(op).await
    }

    async fn sweep(&self) -> anyhow::Result<()> {
        self.subject.ledger().sweep().await?;
        Ok(self.model.sweep().await?)
    }

    /// Every record, and every quota that a record's user has.
    pub async fn compare_records(&self) -> anyhow::Result<()> {
        let subject = self.subject.ledger();
        for (place, (ours, theirs)) in self.ids.iter().enumerate() {
            let record = subject.message(*ours).await?;
            ensure!(record.as_ref().is_none_or(|record| record.id == *ours), "asked for {ours}: {record:?}");
            let record = record.map(|record| self.as_model_record(record));
            let expected = self.model.message(*theirs).await?.map(without_expiry_time);
            agree(&record, &expected).with_context(|| format!("message {place}"))?;
            let Some(record) = record else { continue };
            if let Some(user) = record.user {
                agree(&subject.quota(user.clone()).await?, &self.model.quota(user).await?)?;
            }
            let is_over = matches!(record.status, Status::Pending | Status::Expired);
            ensure!(is_over || record.settled_at.is_some());
        }
        Ok(())
    }

    /// How many leases have ended and how many messages have expired is only certain after a sweep.
    async fn compare_books(&self, op: &Op) -> anyhow::Result<()> {
        let mut ours = self.subject.ledger().counts().await?;
        let theirs = self.model.counts().await?;
        ensure!(ours.balanced(), "unbalanced: {ours:?}");
        if !matches!(op, Op::Sweep | Op::Reopen) {
            ours.leased = theirs.leased;
        }
        if !matches!(op, Op::Sweep) && ours.expired < theirs.expired {
            let unnoticed = theirs.expired - ours.expired;
            ensure!(ours.pending == theirs.pending + unnoticed, "{ours:?} instead of {theirs:?}");
            (ours.pending, ours.expired, ours.depth) = (theirs.pending, theirs.expired, theirs.depth);
        }
        agree(&ours, &theirs)?;
        if matches!(op, Op::Sweep) {
            agree(&self.subject.queues().queue_counts().await?, &self.model.queue_counts().await?)?;
        }
        Ok(())
    }

    async fn admit(&mut self, batch: &[Admit]) -> anyhow::Result<()> {
        let now = self.subject.clock.now();
        let admissions: Vec<_> = batch.iter().map(|admit| draft(admit, now).0).collect();
        let ours = self.subject.ledger().admit(admissions.clone()).await?;
        let theirs = self.model.admit(admissions).await?;
        ensure!(ours.len() == theirs.len(), "{} answers instead of {}", ours.len(), theirs.len());
        for (ours, theirs) in ours.into_iter().zip(theirs) {
            if let (Some(ours), Some(theirs)) = (new_id(&ours), new_id(&theirs)) {
                self.ids.push((ours, theirs));
            }
            let ours = answer(ours, |id| self.ids.iter().position(|(known, _)| *known == id))?;
            agree(&ours, &answer(theirs, |id| self.ids.iter().position(|(_, known)| *known == id))?)?;
        }
        Ok(())
    }

    async fn claim(&mut self, queue: u8, max: usize, lease_ms: u64) -> anyhow::Result<()> {
        let queue = crate::conformance::queue(&format!("queue{queue}"));
        let request = ClaimRequest { queue, max, lease_ms, wait_ms: 0 };
        let ours = self.subject.ledger().claim(request.clone()).await?;
        let theirs = self.model.claim(request).await?;
        self.leased(&ours, &theirs)
    }

    /// Both have leased the same.
    pub(super) fn leased(&mut self, ours: &[Claim], theirs: &[Claim]) -> anyhow::Result<()> {
        agree(&self.as_model_claims(ours, theirs), &theirs.to_vec())?;
        for (ours, theirs) in ours.iter().zip(theirs) {
            self.hold(ours.id, ours.token, (theirs.id, theirs.token))?;
        }
        Ok(())
    }

    /// One more lease: ours, and what the model calls it.
    pub(super) fn hold(&mut self, id: MessageId, token: u64, theirs: (MessageId, u64)) -> anyhow::Result<()> {
        let mut earlier = self.leases.iter().filter(|[(other, _), _]| *other == id);
        ensure!(earlier.all(|[(_, earlier), _]| *earlier < token), "the token did not grow");
        self.leases.push([(id, token), theirs]);
        Ok(())
    }

    async fn settle(&mut self, batch: &[Settle]) -> anyhow::Result<()> {
        let [ours, theirs] = self.settlements(batch);
        let ours = self.subject.ledger().settle(ours).await?;
        agree(&ours, &self.model.settle(theirs).await?)
    }

    async fn advance(&mut self, batch: &[Settle], lease_ms: u64) -> anyhow::Result<()> {
        // What has expired and was not noticed may be in the way.
        self.subject.ledger().sweep().await?;
        let [ours, theirs] = self.settlements(batch);
        let ours = self.subject.ledger().advance(ours, lease_ms).await?;
        let theirs = self.model.advance(theirs, lease_ms).await?;
        let settled =
            |all: &[Advanced]| all.iter().map(|one| (one.settled, one.next.is_some())).collect::<Vec<_>>();
        agree(&settled(&ours), &settled(&theirs))?;
        let next = |all: Vec<Advanced>| all.into_iter().filter_map(|one| one.next).collect::<Vec<_>>();
        self.leased(&next(ours), &next(theirs))
    }

    /// What is to be settled, as the subject and as the model call it.
    fn settlements(&self, batch: &[Settle]) -> [Vec<Settlement>; 2] {
        let chosen: Vec<_> = batch
            .iter()
            .filter_map(|settle| {
                let place = self.leases.len().checked_sub(1 + settle.lease_back)?;
                Some((self.leases[place], settle))
            })
            .collect();
        [0, 1].map(|side: usize| {
            let settlements = chosen.iter().map(|(lease, settle)| Settlement {
                id: lease[side].0,
                token: lease[side].1,
                outcome: settle.outcome.clone(),
                latency_ms: settle.latency_ms,
            });
            settlements.collect()
        })
    }

    /// The subject's claims with the model's ids and tokens.
    pub(super) fn as_model_claims(&self, ours: &[Claim], theirs: &[Claim]) -> Vec<Claim> {
        ours.iter()
            .zip(theirs.iter().map(|claim| claim.token).chain(std::iter::repeat(0)))
            .map(|(claim, token)| Claim { id: self.their_id(claim.id), token, ..claim.clone() })
            .collect()
    }

    pub(super) fn as_model_record(&self, record: MessageRecord) -> MessageRecord {
        without_expiry_time(MessageRecord { id: self.their_id(record.id), ..record })
    }

    /// An id that the subject made up stays as it is and won't agree.
    pub(super) fn their_id(&self, ours: MessageId) -> MessageId {
        self.ids.iter().find(|(id, _)| *id == ours).map_or(ours, |(_, theirs)| *theirs)
    }
}

/// When a ledger notices that a waiting message's time is over is its own affair.
pub(super) fn without_expiry_time(mut record: MessageRecord) -> MessageRecord {
    if record.status == Status::Expired {
        record.settled_at = None;
    }
    record
}

fn new_id(admitted: &Admitted) -> Option<MessageId> {
    match admitted {
        Admitted::Admitted { id, .. } | Admitted::Deferred { id, .. } => Some(*id),
        _ => None,
    }
}

fn draft(admit: &Admit, now: Timestamp) -> Draft {
    let mut draft = sms(&format!("body{}", admit.body)).on(&format!("queue{}", admit.queue)).lane(admit.lane);
    if let Some(recipient) = admit.recipient {
        draft = draft.to(&format!("recipient{recipient}"));
    }
    if let Some(ms) = admit.due_in_ms {
        draft = draft.due(Due::At(Timestamp::from_millis(now.millis() + ms)));
    }
    if let Some(user) = admit.user {
        draft = draft.charged_to(&format!("user{user}"));
    }
    if let Some(key) = admit.key {
        draft = draft.key(&format!("key{key}"));
    }
    if let Some(horizon_ms) = admit.defer_ms {
        draft.0.on_limit = OnLimit::Defer { horizon_ms };
    }
    if let Some(ms) = admit.expires_in_ms {
        draft = draft.expires(now.plus_ms(ms));
    }
    if let Some(header) = admit.header {
        draft = draft.header("header", &header.to_string());
    }
    draft.0.ack_required = admit.ack_required;
    draft
}

fn answer(admitted: Admitted, place_of: impl Fn(MessageId) -> Option<usize>) -> anyhow::Result<Answer> {
    let place = |id| place_of(id).with_context(|| format!("unknown id {id}"));
    Ok(match admitted {
        Admitted::Admitted { id, at, quota } => Answer::Admitted { place: place(id)?, at, quota },
        Admitted::Deferred { id, at, due, quota } => Answer::Deferred { place: place(id)?, at, due, quota },
        Admitted::Duplicate { id, at } => Answer::Duplicate { place: place(id)?, at },
        Admitted::KeyConflict { id } => Answer::KeyConflict { place: place(id)? },
        refused => Answer::Refused(refused),
    })
}

pub(super) fn agree<T: PartialEq + std::fmt::Debug>(ours: &T, theirs: &T) -> anyhow::Result<()> {
    ensure!(ours == theirs, "the ledger says\n  {ours:?}\nthe model says\n  {theirs:?}");
    Ok(())
}

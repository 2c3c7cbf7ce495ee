use tidegate_domain::{
    Admission, AttemptRecord, AttemptResult, Body, Due, MessageId, MessageRecord, Status, Timestamp,
};

#[derive(Debug)]
pub struct Row {
    pub record: MessageRecord,
    pub lease: Option<Lease>,
    /// The number of the last attempt that was spent on it.
    pub spent: u32,
    pub failures: u32,
    /// Handed back until then, because its recipient was away.
    pub held_until: Option<Timestamp>,
    /// How often a channel accepted it.
    pub acks: u32,
    /// Its place in the order of admission, or of requeueing.
    pub order: u64,
    /// Whether it waits for the earlier ones of its recipient.
    pub strict: bool,
    /// A dead letter that was removed for good: counted, and otherwise unknown.
    pub removed: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct Lease {
    pub token: u64,
    pub until: Timestamp,
    pub attempt: u32,
    /// On its way to a sender: the attempt has not begun.
    pub in_transit: bool,
}

impl Row {
    pub fn new(id: MessageId, admission: Admission, now: Timestamp, order: u64, strict: bool) -> Self {
        let due_at = match admission.due {
            Due::Now => now,
            Due::At(at) => at,
        };
        let record = MessageRecord {
            id,
            queue: admission.queue,
            recipient: admission.recipient,
            lane: admission.lane,
            user: admission.charge,
            admitted_at: now,
            due_at,
            status: Status::Pending,
            settled_at: None,
            reason: None,
            attempts: Vec::new(),
            expires_at: admission.expires,
            headers: admission.headers,
            ack_required: admission.ack_required,
            body: Body::Whole(admission.body),
        };
        Self {
            record,
            lease: None,
            spent: 0,
            failures: 0,
            held_until: None,
            acks: 0,
            order,
            strict,
            removed: false,
        }
    }

    /// Failed attempts since it was admitted or requeued.
    pub fn failures_recorded(&self) -> u32 {
        let since = self.record.attempts.iter().rev().take_while(|a| a.result != AttemptResult::Requeued);
        let failed = since.filter(|attempt| attempt.result == AttemptResult::Failed).count();
        u32::try_from(failed).expect("few attempts")
    }

    pub fn claimable_at(&self) -> Timestamp {
        self.held_until.unwrap_or(self.record.due_at)
    }

    pub fn is_pending(&self) -> bool {
        self.record.status == Status::Pending
    }

    /// Pending, and nobody holds it.
    pub fn is_waiting(&self) -> bool {
        self.is_pending() && self.lease.is_none()
    }

    /// Somebody tries it, or has tried it.
    pub fn has_been_out(&self) -> bool {
        self.attempt_under_way().is_some() || self.spent > 0
    }

    /// The lease under which somebody tries it.
    pub fn attempt_under_way(&self) -> Option<Lease> {
        self.lease.filter(|lease| !lease.in_transit)
    }

    /// Whether its recipient's word counts though it has ended.
    pub fn is_awaited_late(&self) -> bool {
        let attempts = &self.record.attempts;
        let since = attempts.iter().rev().take_while(|a| a.result != AttemptResult::Requeued);
        let accepted = since.filter(|attempt| attempt.result == AttemptResult::Accepted).count() > 0;
        let been_out = self.record.status == Status::Dead || !attempts.is_empty();
        accepted || self.record.ack_required && been_out
    }

    /// An attempt that failed.
    pub fn fail(&mut self, number: u32, at: Timestamp, latency_ms: u64, reason: String) {
        let (result, reason) = (AttemptResult::Failed, Some(reason));
        self.record.attempts.push(AttemptRecord { number, at, latency_ms, result, reason });
    }

    /// It ends without an attempt.
    pub fn end(&mut self, status: Status, now: Timestamp) {
        self.lease = None;
        self.record.status = status;
        self.record.settled_at = Some(now);
        if status == Status::Deleted {
            self.record.body = Body::Erased;
            self.record.headers = self.record.headers.erased();
        }
    }

    pub fn waits_in_chain_of(&self, other: &Self) -> bool {
        self.is_pending()
            && self.strict
            && self.record.queue == other.record.queue
            && self.record.recipient.is_some()
            && self.record.recipient == other.record.recipient
    }
}

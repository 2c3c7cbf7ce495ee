use tidegate_domain::{Admission, AttemptResult, Due, MessageId, MessageRecord, Status, Timestamp};

#[derive(Debug)]
pub struct Row {
    pub record: MessageRecord,
    pub lease: Option<Lease>,
    /// The number of the last attempt that was spent on it.
    pub spent: u32,
    pub failures: u32,
    /// How often a channel accepted it.
    pub acks: u32,
}

#[derive(Debug, Clone, Copy)]
pub struct Lease {
    pub token: u64,
    pub until: Timestamp,
    pub attempt: u32,
}

impl Row {
    pub fn new(id: MessageId, admission: Admission, now: Timestamp) -> Self {
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
            body: admission.body,
        };
        Self { record, lease: None, spent: 0, failures: 0, acks: 0 }
    }

    /// Failed attempts since it was admitted or requeued.
    pub fn failures_recorded(&self) -> u32 {
        let since = self.record.attempts.iter().rev().take_while(|a| a.result != AttemptResult::Requeued);
        let failed = since.filter(|attempt| attempt.result == AttemptResult::Failed).count();
        u32::try_from(failed).expect("few attempts")
    }

    pub fn is_pending(&self) -> bool {
        self.record.status == Status::Pending
    }

    pub fn waits_in_chain_of(&self, other: &Self) -> bool {
        self.is_pending()
            && self.record.queue == other.record.queue
            && self.record.recipient.is_some()
            && self.record.recipient == other.record.recipient
    }
}

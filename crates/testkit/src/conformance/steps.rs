use bytes::Bytes;
use tidegate_domain::{
    Admission, Admitted, Claim, ClaimRequest, Clock, Counts, Due, Fingerprint, Idempotency, IdempotencyKey,
    Lane, MessageId, MessageRecord, OnLimit, Outcome, QueueName, Recipient, Settled, Settlement, Timestamp,
    UserId,
};

use crate::Harness;

pub const QUEUE: &str = "sms";
pub const LEASE_MS: u64 = 30_000;

/// An admission in the making: `sms("hello").to("alice").lane(Lane::High)`.
#[derive(Debug, Clone)]
pub struct Draft(pub Admission);

/// A message of the normal lane, due now, with no recipient, charge or key.
pub fn sms(body: &str) -> Draft {
    Draft(Admission {
        queue: queue(QUEUE),
        recipient: None,
        lane: Lane::Normal,
        due: Due::Now,
        body: Bytes::copy_from_slice(body.as_bytes()),
        charge: None,
        on_limit: OnLimit::Deny,
        idempotency: None,
        expires: None,
        headers: tidegate_domain::Headers::default(),
        ack_required: false,
    })
}

pub fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a valid queue name")
}

pub fn user(name: &str) -> UserId {
    UserId::new(name).expect("a valid user id")
}

impl Draft {
    pub fn on(mut self, name: &str) -> Self {
        self.0.queue = queue(name);
        self
    }

    pub fn to(mut self, recipient: &str) -> Self {
        self.0.recipient = Some(Recipient::new(recipient).expect("a valid recipient"));
        self
    }

    pub fn lane(mut self, lane: Lane) -> Self {
        self.0.lane = lane;
        self
    }

    pub fn due(mut self, due: Due) -> Self {
        self.0.due = due;
        self
    }

    pub fn charged_to(mut self, name: &str) -> Self {
        self.0.charge = Some(user(name));
        self
    }

    pub fn expires(mut self, at: Timestamp) -> Self {
        self.0.expires = Some(at);
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.0.headers.0.push((name.into(), value.into()));
        self
    }

    pub fn needs_ack(mut self) -> Self {
        self.0.ack_required = true;
        self
    }

    /// The fingerprint is the body's, as at the gateway.
    pub fn key(mut self, key: &str) -> Self {
        let fingerprint = Fingerprint::of(&[&self.0.body]);
        self.0.idempotency = Some(Idempotency { key: IdempotencyKey::new("caller", key), fingerprint });
        self
    }
}

/// One step each, with the books checked after it.
impl Harness {
    pub async fn admit(&self, drafts: impl IntoIterator<Item = Draft>) -> Vec<Admitted> {
        let batch: Vec<_> = drafts.into_iter().map(|draft| draft.0).collect();
        let expected = batch.len();
        let admitted = self.ledger().admit(batch).await.expect("admit");
        assert_eq!(admitted.len(), expected, "one answer per item");
        self.counts().await;
        admitted
    }

    pub async fn admit_one(&self, draft: Draft) -> Admitted {
        self.admit([draft]).await.remove(0)
    }

    /// Admits a message that nothing stands against.
    pub async fn put(&self, draft: Draft) -> MessageId {
        match self.admit_one(draft).await {
            Admitted::Admitted { id, .. } => id,
            refused => panic!("not admitted: {refused:?}"),
        }
    }

    pub async fn put_all(&self, drafts: impl IntoIterator<Item = Draft>) -> Vec<MessageId> {
        let admitted = self.admit(drafts).await;
        let ids = admitted.into_iter().map(|admitted| match admitted {
            Admitted::Admitted { id, .. } => id,
            refused => panic!("not admitted: {refused:?}"),
        });
        ids.collect()
    }

    pub async fn claim_from(&self, name: &str, max: usize) -> Vec<Claim> {
        let request = ClaimRequest { queue: queue(name), max, lease_ms: LEASE_MS, wait_ms: 0 };
        let claims = self.ledger().claim(request).await.expect("claim");
        let until = self.clock.now().plus_ms(LEASE_MS);
        assert!(claims.iter().all(|claim| claim.lease_until == until), "leased for what was asked");
        self.counts().await;
        claims
    }

    pub async fn claim(&self, max: usize) -> Vec<Claim> {
        self.claim_from(QUEUE, max).await
    }

    pub async fn claim_one(&self) -> Claim {
        self.claim(1).await.pop().expect("a claimable message")
    }

    pub async fn settle(&self, claim: &Claim, outcome: Outcome) -> Settled {
        let settlement = Settlement { id: claim.id, token: claim.token, outcome, latency_ms: 7 };
        let settled = self.ledger().settle(vec![settlement]).await.expect("settle");
        assert_eq!(settled.len(), 1, "one answer per item");
        self.counts().await;
        settled[0]
    }

    pub async fn deliver(&self, claim: &Claim) {
        assert_eq!(self.settle(claim, Outcome::Delivered).await, Settled::Done);
    }

    /// Claims and delivers one by one until nothing is claimable: the bodies, in that order.
    pub async fn deliver_all(&self) -> Vec<String> {
        let mut bodies = Vec::new();
        while let Some(claim) = self.claim(1).await.pop() {
            bodies.push(text(&claim));
            self.deliver(&claim).await;
        }
        bodies
    }

    pub async fn record(&self, id: MessageId) -> MessageRecord {
        self.ledger().message(id).await.expect("message").expect("a known id")
    }

    /// The counts, which balance at every moment.
    pub async fn counts(&self) -> Counts {
        let counts = self.ledger().counts().await.expect("counts");
        assert!(counts.balanced(), "{counts:?}");
        assert_eq!(counts.depth.iter().sum::<u64>(), counts.pending, "{counts:?}");
        assert!(counts.leased <= counts.pending, "{counts:?}");
        counts
    }
}

pub fn text(claim: &Claim) -> String {
    let body = claim.body.as_ref().expect("an undamaged body");
    String::from_utf8(body.to_vec()).expect("text")
}

pub fn texts(claims: &[Claim]) -> Vec<String> {
    claims.iter().map(text).collect()
}

pub fn retry(delay_ms: u64) -> Outcome {
    Outcome::Retry { delay_ms, reason: "busy".into() }
}

pub fn dead() -> Outcome {
    Outcome::Dead { reason: "no such number".into() }
}

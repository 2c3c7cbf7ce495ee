use bytes::Bytes;
use tidegate_domain::{Admission, Due, Fingerprint, Headers, Lane, OnLimit, QueueName, Recipient, Timestamp};

use super::Gateway;
use super::fields::{Fields, Name, PRIORITY};
use super::idempotency::Keyed;
use super::times::instant;
use super::{idempotency, trace};
use crate::config::{ChannelKind, Outlet};

pub const RECIPIENT: Name = Name::new("recipient", "recipient");
pub const DELAY_SECONDS: Name = Name::new("delaySeconds", "delay_seconds");
pub const SCHEDULED_AT: Name = Name::new("scheduledAt", "scheduled_at");
pub const TTL_SECONDS: Name = Name::new("ttlSeconds", "ttl_seconds");
pub const IDEMPOTENCY_KEY: Name = Name::new("idempotencyKey", "idempotency_key");

/// A year.
pub const SECONDS_MAX: u64 = 31_536_000;

/// Why a message can't go to a queue that devices read.
pub const NO_RECIPIENT: &str =
    "is missing: devices read the messages of this queue, each those of its recipient";

/// A recipient of a new message. Look-ups take a blank one: there may be messages from before it was refused.
pub fn recipient(text: &str) -> Result<Recipient, &'static str> {
    match text.is_empty() || !text.trim().is_empty() {
        true => Recipient::new(text).map_err(|wrong| wrong.0),
        false => Err("must not be blank"),
    }
}

pub fn needs_recipient(gateway: &Gateway, queue: &QueueName) -> bool {
    gateway.queue_settings.of(queue).outlet == Outlet::Channel(ChannelKind::Inbox)
}

/// What a message says about itself beside its text, whichever way it comes in.
#[derive(Debug, Clone, Default)]
pub struct Envelope {
    pub recipient: Option<Recipient>,
    pub lane: Lane,
    pub delay_s: Option<u64>,
    pub scheduled_at: Option<Timestamp>,
    pub ttl_s: Option<u64>,
    pub key: Option<String>,
    pub headers: Headers,
    pub ack_required: bool,
    /// The trace of the request that it came with. No part of what was asked for: a repetition has another one.
    pub trace: Option<String>,
}

impl Envelope {
    /// The fields that every way in knows. A fault in any of them stands in `fields`.
    pub fn read(fields: &mut Fields) -> Option<Self> {
        let recipient = fields.optional(RECIPIENT, recipient);
        let lane = fields.lane(PRIORITY);
        let delay_s = fields.count(DELAY_SECONDS, 0..=SECONDS_MAX);
        let scheduled_at = fields.optional(SCHEDULED_AT, instant);
        let ttl_s = fields.count(TTL_SECONDS, 1..=SECONDS_MAX);
        let key = fields.optional(IDEMPOTENCY_KEY, |text| idempotency::checked(text).map(str::to_owned));
        if let (Some(Some(_)), Some(Some(_))) = (&delay_s, &scheduled_at) {
            fields.fault::<()>(SCHEDULED_AT, "does not go with delaySeconds");
        }
        Some(Self {
            recipient: recipient?,
            lane: lane?,
            delay_s: delay_s?,
            scheduled_at: scheduled_at?,
            ttl_s: ttl_s?,
            key: key?,
            headers: Headers::default(),
            ack_required: false,
            trace: None,
        })
    }

    /// When it is due, if that was put off.
    pub fn due(&self, now: Timestamp) -> Option<Timestamp> {
        self.scheduled_at.or(self.delay_s.map(|s| now.plus_ms(s * 1_000)))
    }

    /// When it is no longer worth sending: by its own word, or by its queue's retention.
    pub fn expires(&self, gateway: &Gateway, queue: &QueueName, now: Timestamp) -> Option<Timestamp> {
        let kept_ms = gateway.queue_settings.of(queue).retention_ms;
        let lives_ms = self.ttl_s.map(|s| s * 1_000);
        kept_ms.into_iter().chain(lives_ms).min().map(|ms| now.plus_ms(ms))
    }

    /// A message that would expire before it is due would never be sent: its caller is told at once.
    pub fn check_lifetime(&self, fields: &mut Fields, gateway: &Gateway, queue: &QueueName) {
        let now = gateway.clock.now();
        let (Some(due), Some(expires)) = (self.due(now), self.expires(gateway, queue, now)) else { return };
        if due < expires {
            return;
        }
        let by_itself = self.ttl_s.is_some_and(|s| now.plus_ms(s * 1_000) == expires);
        let delay = if self.scheduled_at.is_some() { SCHEDULED_AT } else { DELAY_SECONDS };
        if by_itself {
            let what = format!("must be longer than {} puts the message off", delay.camel());
            fields.fault::<()>(TTL_SECONDS, &what);
        } else {
            let what =
                format!("is beyond retention_minutes of queue {queue}: the message would expire first");
            fields.fault::<()>(delay, &what);
        }
    }

    /// Devices read what is theirs: a message without a recipient would wait for ever.
    pub fn check_recipient(&self, fields: &mut Fields, gateway: &Gateway, queue: &QueueName) {
        if self.recipient.is_none() && needs_recipient(gateway, queue) {
            fields.fault::<()>(RECIPIENT, NO_RECIPIENT);
        }
    }

    /// `caller` and `operation` keep the idempotency keys of callers and of routes apart.
    pub fn admission(
        self,
        gateway: &Gateway,
        (caller, operation): (&str, &str),
        queue: QueueName,
        body: Bytes,
    ) -> Admission {
        let now = gateway.clock.now();
        let (key, recipient) = (self.key.as_deref(), self.recipient.as_ref());
        let keyed = Keyed { caller, key, queue: &queue, recipient, body: &body };
        let keyed = keyed.idempotency(gateway, || self.fingerprint(operation, &queue, &body));
        let mut headers = self.headers.clone();
        // Before the key, which no caller's headers may hold.
        trace::add(&mut headers, self.trace.as_deref());
        let idempotency = keyed.map(|(shown, idempotency)| {
            headers.set_key(shown);
            idempotency
        });
        Admission {
            due: self.due(now).map_or(Due::Now, Due::At),
            expires: self.expires(gateway, &queue, now),
            queue,
            recipient: self.recipient,
            lane: self.lane,
            body,
            charge: None,
            on_limit: OnLimit::Deny,
            idempotency,
            headers,
            ack_required: self.ack_required,
        }
    }

    /// Of what was asked for, not of what became of it: a delay repeated later is still the same request.
    fn fingerprint(&self, operation: &str, queue: &QueueName, body: &[u8]) -> Fingerprint {
        let number = |number: Option<u64>| number.map(|n| n.to_string()).unwrap_or_default();
        let scheduled = self.scheduled_at.map(|at| at.millis().to_string()).unwrap_or_default();
        let (delay, ttl) = (number(self.delay_s), number(self.ttl_s));
        let recipient = self.recipient.as_ref().map_or("", |recipient| recipient.as_str());
        let mut parts = vec![
            operation.as_bytes(),
            queue.as_str().as_bytes(),
            recipient.as_bytes(),
            self.lane.as_str().as_bytes(),
            scheduled.as_bytes(),
            delay.as_bytes(),
            ttl.as_bytes(),
            if self.ack_required { b"ack" } else { b"" },
            body,
        ];
        for (name, value) in &self.headers.0 {
            parts.extend([name.as_bytes(), value.as_bytes()]);
        }
        Fingerprint::of(&parts)
    }
}

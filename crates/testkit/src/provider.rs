mod web;

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_domain::{Channel, Claim, Delivery, MessageId, UserId};
use tokio::sync::watch;

pub use self::web::WebProvider;
use crate::journal::ProviderJournal;

/// A provider in the test's hand: it does what its script says, attempt by attempt, and journals every one.
#[derive(Debug)]
pub struct FakeProvider {
    script: Mutex<VecDeque<Step>>,
    afterwards: Step,
    attempts: watch::Sender<Vec<Attempt>>,
}

/// How the provider takes an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Deliver,
    TryLater {
        after_ms: Option<u64>,
    },
    Refuse,
    /// Takes the message and never answers.
    Stall,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub id: MessageId,
    pub number: u32,
    pub user: Option<UserId>,
    pub body: Bytes,
    pub step: Step,
}

impl FakeProvider {
    /// Follows the script, then does the same for ever.
    pub fn new(script: impl IntoIterator<Item = Step>, afterwards: Step) -> Self {
        let script = Mutex::new(script.into_iter().collect());
        Self { script, afterwards, attempts: watch::Sender::default() }
    }

    /// Delivers everything.
    pub fn willing() -> Self {
        Self::new([], Step::Deliver)
    }

    pub fn then(&self, steps: impl IntoIterator<Item = Step>) {
        self.script().extend(steps);
    }

    /// So far, in the order in which they came.
    pub fn attempts(&self) -> Vec<Attempt> {
        self.attempts.borrow().clone()
    }

    /// Waits for that many attempts: the way to know that something was sent without sleeping.
    pub async fn attempts_reach(&self, count: usize, within: Duration) -> anyhow::Result<Vec<Attempt>> {
        let mut seen = self.attempts.subscribe();
        let reached = tokio::time::timeout(within, seen.wait_for(|attempts| attempts.len() >= count)).await;
        match reached {
            Ok(Ok(attempts)) => Ok(attempts.clone()),
            _ => anyhow::bail!("{} attempts instead of {count} within {within:?}", self.attempts().len()),
        }
    }

    /// What the provider sent on, for the judge.
    pub fn journal(&self) -> ProviderJournal {
        let mut journal = ProviderJournal::default();
        for attempt in self.attempts().iter().filter(|attempt| attempt.step == Step::Deliver) {
            let text = String::from_utf8_lossy(&attempt.body);
            journal.note(attempt.id, attempt.user.as_ref().map(UserId::as_str), &text);
        }
        journal
    }

    fn script(&self) -> MutexGuard<'_, VecDeque<Step>> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Channel for FakeProvider {
    fn name(&self) -> &'static str {
        "fake"
    }

    async fn deliver(&self, claim: &Claim, body: &Bytes) -> Delivery {
        let step = self.script().pop_front().unwrap_or(self.afterwards);
        let attempt = Attempt {
            id: claim.id,
            number: claim.attempt,
            user: claim.user.clone(),
            body: body.clone(),
            step,
        };
        self.attempts.send_modify(|attempts| attempts.push(attempt));
        match step {
            Step::Deliver => Delivery::Delivered,
            Step::TryLater { after_ms } => Delivery::TryLater { after_ms, reason: "busy".into() },
            Step::Refuse => Delivery::Refused { reason: "no such number".into() },
            Step::Stall => std::future::pending().await,
        }
    }
}

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use tidegate_domain::{Claim, Delivery, Outcome, RetryPolicy, Settlement, counted, outcome_of};
use tokio::time::Instant;

use super::Sender;

/// Tries one message once and says what to settle. Whatever the channel does (hang, panic), this ends, and it ends
/// before the lease does: what can't be begun in time is handed back untried.
pub async fn attempt(sender: Sender, claim: Claim, body: Bytes) -> Settlement {
    let timeout = sender.settings.attempt_timeout;
    let begin_by = claim.lease_until.minus_ms(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
    let within = Duration::from_millis(begin_by.since_ms(sender.channel.now()) / 2);
    let Some(_room) = sender.channel.enter(within).await else { return handed_back(&claim) };
    // Much may have passed since the claim: its answer was slow, or the process did not run at all.
    if sender.channel.now() >= begin_by || !sender.channel.start() {
        return handed_back(&claim);
    }
    let started = Instant::now();
    let channel = &sender.channel.channel;
    let delivering = AssertUnwindSafe(channel.deliver(&claim, &body)).catch_unwind();
    let delivery = match tokio::time::timeout(timeout, delivering).await {
        Ok(Ok(delivery)) => delivery,
        Ok(Err(_panic)) => {
            tracing::error!(channel = channel.name(), message_id = %claim.id, "the channel panicked");
            try_later("the channel failed")
        }
        Err(_elapsed) => try_later(&format!("no answer within {} ms", timeout.as_millis())),
    };
    match &delivery {
        Delivery::NotTried { reason } => sender.channel.withdraw(reason),
        tried => sender.channel.record(!matches!(tried, Delivery::TryLater { .. })),
    }
    // A channel that delivers without waiting for acks has delivered no more than the offer of one.
    let delivery = match delivery {
        Delivery::Delivered if claim.ack_required => Delivery::Accepted,
        other => other,
    };
    count(&delivery);
    let latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let mut outcome = outcome_of(delivery, claim.failures, &sender.settings.retry);
    if let Outcome::Retry { delay_ms, .. } | Outcome::Held { for_ms: delay_ms } = &mut outcome {
        *delay_ms = sender.channel.spread(*delay_ms);
    }
    Settlement { id: claim.id, token: claim.token, outcome, latency_ms }
}

/// What needs no attempt, because none can succeed.
pub fn hopeless(claim: &Claim, retry: &RetryPolicy) -> Option<Settlement> {
    let reason = if claim.body.is_none() {
        tracing::error!(message_id = %claim.id, queue = %claim.queue, "the message is damaged on disk; it becomes a dead letter");
        "damaged on disk".to_owned()
    } else if claim.failures >= retry.attempts_max {
        // Its last attempts ended with a lease, not with an answer: a message that takes its sender down must
        // not do so for ever.
        format!("gave up after {}: the last one never ended", counted(retry.attempts_max, "attempt"))
    } else if claim.ack_attempts >= retry.attempts_max {
        format!("never acknowledged: delivered {} without an ack", counted(claim.ack_attempts, "time"))
    } else {
        return None;
    };
    metrics::counter!("tidegate_sender_attempts_total", "result" => "given_up").increment(1);
    Some(Settlement { id: claim.id, token: claim.token, outcome: Outcome::GivenUp { reason }, latency_ms: 0 })
}

pub fn handed_back(claim: &Claim) -> Settlement {
    Settlement { id: claim.id, token: claim.token, outcome: Outcome::Released, latency_ms: 0 }
}

fn try_later(reason: &str) -> Delivery {
    Delivery::TryLater { after_ms: None, reason: reason.to_owned() }
}

pub fn count(delivery: &Delivery) {
    let result = match delivery {
        Delivery::Delivered => "delivered",
        Delivery::Accepted => "accepted",
        Delivery::TryLater { .. } => "try_later",
        Delivery::NotTried { .. } => "not_tried",
        Delivery::Refused { .. } => "refused",
    };
    metrics::counter!("tidegate_sender_attempts_total", "result" => result).increment(1);
}

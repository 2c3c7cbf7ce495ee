use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use tidegate_domain::{Channel, Claim, Delivery, Outcome, RetryPolicy, Settlement, outcome_of};
use tokio::time::Instant;

/// Tries one message once and says what to settle. Whatever the channel does (hang, panic), this ends.
pub async fn attempt(
    channel: Arc<dyn Channel>,
    claim: Claim,
    body: Bytes,
    timeout: Duration,
    retry: RetryPolicy,
) -> Settlement {
    let started = Instant::now();
    let delivering = AssertUnwindSafe(channel.deliver(&claim, &body)).catch_unwind();
    let delivery = match tokio::time::timeout(timeout, delivering).await {
        Ok(Ok(delivery)) => delivery,
        Ok(Err(_panic)) => {
            tracing::error!(channel = channel.name(), message = %claim.id, "the channel panicked");
            try_later("the channel failed")
        }
        Err(_elapsed) => try_later(&format!("no answer within {} ms", timeout.as_millis())),
    };
    // A channel that delivers without waiting for acks has delivered no more than the offer of one.
    let delivery = match delivery {
        Delivery::Delivered if claim.ack_required => Delivery::Accepted,
        other => other,
    };
    count(&delivery);
    let latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let outcome = outcome_of(delivery, claim.failures, &retry);
    Settlement { id: claim.id, token: claim.token, outcome, latency_ms }
}

/// What needs no attempt, because none can succeed.
pub fn hopeless(claim: &Claim, retry: &RetryPolicy) -> Option<Settlement> {
    let reason = if claim.body.is_none() {
        tracing::error!(message = %claim.id, queue = %claim.queue, "the message is damaged on disk; it becomes a dead letter");
        "damaged on disk".to_owned()
    } else if claim.failures >= retry.attempts_max {
        // Its last attempts ended with a lease, not with an answer: a message that takes its sender down must
        // not do so for ever.
        format!("gave up after {} attempts: the last one never ended", retry.attempts_max)
    } else if claim.ack_attempts >= retry.attempts_max {
        format!("never acknowledged: delivered {} times without an ack", claim.ack_attempts)
    } else {
        return None;
    };
    metrics::counter!("tidegate_sender_attempts_total", "result" => "given_up").increment(1);
    Some(Settlement { id: claim.id, token: claim.token, outcome: Outcome::Dead { reason }, latency_ms: 0 })
}

fn try_later(reason: &str) -> Delivery {
    Delivery::TryLater { after_ms: None, reason: reason.to_owned() }
}

fn count(delivery: &Delivery) {
    let result = match delivery {
        Delivery::Delivered => "delivered",
        Delivery::Accepted => "accepted",
        Delivery::TryLater { .. } => "try_later",
        Delivery::Refused { .. } => "refused",
    };
    metrics::counter!("tidegate_sender_attempts_total", "result" => result).increment(1);
}

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use tidegate_domain::{Claim, ClaimRequest, LedgerError, Outcome, QueueName, Settled, Settlement, counted};
use tidegate_edge::{ApiError, Principal};
use tokio::time::{Duration, Instant};

use super::receipt::Receipt;
use super::{CONSUMER_GROUP, MessageResponse, ReservedResponse, group, no_value};
use crate::config::{Outlet, PullMode, QueueSettings};
use crate::http::answer::{iso, json};
use crate::http::failure::{check_writable, from_ledger};
use crate::http::fields::Name;
use crate::http::{Gateway, options};

const WAIT_SECONDS: Name = Name::new("waitSeconds", "wait_seconds");
const MAX: Name = Name::new("max", "max");

/// A wait is made of waits this long, so that a stop finds its end.
const SLICE: Duration = Duration::from_secs(1);
/// How often one pop looks again behind messages that can't be handed out.
const HOPELESS_ROUNDS_MAX: usize = 100;

/// `GET /queue/pop`: the oldest message of the group, taken for good or leased, as the group's mode says.
pub async fn pop(
    State(gateway): State<Arc<Gateway>>,
    _principal: Principal,
    request: Request,
) -> Result<Response, ApiError> {
    let settings = &gateway.queue_settings;
    let mut fields = options::fields(&request, &[CONSUMER_GROUP, WAIT_SECONDS, MAX])?;
    let queue = group(&mut fields);
    let wait_s = fields.count(WAIT_SECONDS, 0..=settings.wait_seconds_max);
    let max = fields.count(MAX, 1..=settings.pop_max as u64);
    fields.finish()?;
    let (Some(queue), Some(wait_s), Some(max)) = (queue, wait_s, max) else { return Err(no_value()) };
    check_writable(gateway.ledger.health())?;
    let kept = settings.of(&queue);
    let Outlet::Pull(mode) = kept.outlet else { return Err(pushed(&queue)) };
    let deadline = Instant::now() + Duration::from_secs(wait_s.unwrap_or(0));
    let most = max.and_then(|max| usize::try_from(max).ok()).unwrap_or(1);
    let waiting = Waiting::begin();
    let claims = loop {
        let wait = deadline.saturating_duration_since(Instant::now());
        let slice_ms = u64::try_from(wait.min(SLICE).as_millis()).unwrap_or(0);
        let over = wait.is_zero() || gateway.is_draining();
        match take(&gateway, &queue, kept, mode, most, slice_ms).await {
            Ok(found) if over || !found.is_empty() => break found,
            Ok(_) => {}
            // Nothing was taken. A disk that is full now may have room before the wait is over.
            Err(LedgerError::NoSpace(_)) if !over => tokio::time::sleep(wait.min(SLICE)).await,
            Err(error) => return Err(from_ledger(error)),
        }
    };
    drop(waiting);
    let answers: Vec<_> = claims.iter().filter_map(|claim| answer(claim, kept, mode)).collect();
    metrics::counter!("tidegate_queue_popped_total").increment(answers.len() as u64);
    // Only a queue that has handed something out is worth a tally: anybody may ask for any name.
    if !answers.is_empty() {
        let tally = gateway.stats.of(&queue);
        tally.popped(if mode == PullMode::Consume { answers.len() as u64 } else { 0 });
    }
    match (max, answers.first()) {
        (Some(_), _) => json(StatusCode::OK, &answers),
        (None, Some(answer)) => json(StatusCode::OK, answer),
        (None, None) => {
            Err(ApiError::not_found("queue_empty", format!("queue {queue} has no message to pop")))
        }
    }
}

/// One pop more in `tidegate_queue_pops_waiting`, until it has its answer or its client has gone.
struct Waiting(metrics::Gauge);

impl Waiting {
    fn begin() -> Self {
        let gauge = metrics::gauge!("tidegate_queue_pops_waiting");
        gauge.increment(1.0);
        Self(gauge)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// What may be handed out. A pop that meets nothing else takes the next: the queue is not empty.
async fn take(
    gateway: &Gateway,
    queue: &QueueName,
    kept: &QueueSettings,
    mode: PullMode,
    max: usize,
    wait_ms: u64,
) -> Result<Vec<Claim>, LedgerError> {
    for _ in 0..HOPELESS_ROUNDS_MAX {
        let (claims, met_hopeless) = take_once(gateway, queue, kept, mode, max, wait_ms).await?;
        if !claims.is_empty() || !met_hopeless {
            return Ok(claims);
        }
    }
    Ok(Vec::new())
}

/// Damaged and given-up messages are dealt with here, and never seen by a consumer.
async fn take_once(
    gateway: &Gateway,
    queue: &QueueName,
    kept: &QueueSettings,
    mode: PullMode,
    max: usize,
    wait_ms: u64,
) -> Result<(Vec<Claim>, bool), LedgerError> {
    let mut claims = match mode {
        PullMode::Consume => gateway.queues.pop(queue.clone(), max, wait_ms).await?,
        PullMode::Reserve => {
            let request = ClaimRequest { queue: queue.clone(), max, lease_ms: kept.lease_ms, wait_ms };
            gateway.ledger.claim(request).await?
        }
    };
    let mut hopeless = Vec::new();
    claims.retain(|claim| {
        let reason = if claim.body.is_none() {
            tracing::error!(message_id = %claim.id, %queue, "the message is damaged on disk and not handed out");
            "damaged on disk".to_owned()
        } else if mode == PullMode::Reserve && claim.failures >= kept.attempts_max {
            format!("gave up after {}: the last lease ended unsettled", counted(claim.failures, "attempt"))
        } else {
            return true;
        };
        let outcome = Outcome::Dead { reason };
        hopeless.push(Settlement { id: claim.id, token: claim.token, outcome, latency_ms: 0 });
        false
    });
    let met_hopeless = !hopeless.is_empty();
    // A popped message has ended already; a leased one ends here.
    if mode == PullMode::Reserve && met_hopeless {
        let settled = gateway.ledger.settle(hopeless.clone()).await?;
        let done = hopeless.iter().zip(settled).filter(|(_, settled)| *settled == Settled::Done);
        let tally = gateway.stats.of(queue);
        done.for_each(|(settlement, _)| tally.settled(settlement));
    }
    Ok((claims, met_hopeless))
}

fn answer<'a>(claim: &'a Claim, kept: &QueueSettings, mode: PullMode) -> Option<MessageResponse<'a>> {
    let reserved = (mode == PullMode::Reserve).then(|| ReservedResponse {
        receipt: Receipt::of(claim, kept.lease_ms, kept.attempts_max).to_string(),
        attempt: claim.attempt,
        lease_until: iso(claim.lease_until),
    });
    // Every way into the ledger takes text alone.
    let content = std::str::from_utf8(claim.body.as_ref()?).ok()?;
    Some(MessageResponse { id: claim.id.to_string(), content, created_at: iso(claim.admitted_at), reserved })
}

fn pushed(queue: &QueueName) -> ApiError {
    let message = format!("queue {queue} is pushed out by senders; it can't be pulled from");
    ApiError::new(StatusCode::CONFLICT, "queue_is_pushed", message)
}

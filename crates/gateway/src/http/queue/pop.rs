use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use tidegate_domain::{
    Claim, ClaimRequest, LedgerError, Outcome, QueueName, Settled, Settlement, lapsed_reason,
};
use tidegate_edge::{ApiError, Principal};
use tokio::time::{Duration, Instant};

use super::receipt::Receipt;
use super::{CONSUMER_GROUP, MessageResponse, ReservedResponse, group, no_value};
use crate::config::{Outlet, PullMode, QueueSettings};
use crate::http::answer::{iso, json};
use crate::http::failure::{check_writable, from_ledger};
use crate::http::fields::Name;
use crate::http::large::Place;
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
    let mut fields = options::fields(&request, &[CONSUMER_GROUP, WAIT_SECONDS, MAX]);
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
    let taking = Taking { gateway: &gateway, queue: &queue, kept, mode };
    let (claims, place) = loop {
        let wait = deadline.saturating_duration_since(Instant::now());
        let over = wait.is_zero() || gateway.is_draining();
        let place = if most > 1 { Some(gateway.large_answers.begin().await?) } else { None };
        let taken = match place {
            None => taking.one(wait.min(SLICE)).await.map(|found| (found, None)),
            Some(place) => taking.many(most, place, wait.min(SLICE)).await,
        };
        match taken {
            Ok((found, place)) if over || !found.is_empty() => break (found, place),
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
    let response = match (max, answers.first()) {
        (Some(_), _) => json(StatusCode::OK, &answers),
        (None, Some(answer)) => json(StatusCode::OK, answer),
        (None, None) => {
            Err(ApiError::not_found("queue_empty", format!("queue {queue} has no message to pop")))
        }
    }?;
    Ok(match place {
        Some(place) => place.until_sent(response),
        None => response,
    })
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

/// Whose messages are taken, and how.
struct Taking<'a> {
    gateway: &'a Gateway,
    queue: &'a QueueName,
    kept: &'a QueueSettings,
    mode: PullMode,
}

impl Taking<'_> {
    async fn one(&self, wait: Duration) -> Result<Vec<Claim>, LedgerError> {
        self.take(1, wait).await
    }

    /// A pop that waits holds no place, and waits for one message alone: however many wait, and are served at the same
    /// moment, only those with a place hold more.
    async fn many(
        &self,
        max: usize,
        place: Place,
        wait: Duration,
    ) -> Result<(Vec<Claim>, Option<Place>), LedgerError> {
        let found = self.take(max, Duration::ZERO).await?;
        if !found.is_empty() || wait.is_zero() {
            return Ok((found, Some(place)));
        }
        drop(place);
        let mut found = self.one(wait).await?;
        let place = if found.is_empty() { None } else { self.gateway.large_answers.try_begin() };
        if place.is_some() {
            match self.take(max - 1, Duration::ZERO).await {
                Ok(more) => found.extend(more),
                // The first one is taken, so it is answered.
                Err(error) => tracing::debug!(%error, queue = %self.queue, "a pop takes one message alone"),
            }
        }
        Ok((found, place))
    }

    /// What may be handed out. A pop that meets nothing else takes the next: the queue is not empty.
    async fn take(&self, max: usize, wait: Duration) -> Result<Vec<Claim>, LedgerError> {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(0);
        for _ in 0..HOPELESS_ROUNDS_MAX {
            let (claims, met_hopeless) = self.take_once(max, wait_ms).await?;
            if !claims.is_empty() || !met_hopeless {
                return Ok(claims);
            }
        }
        Ok(Vec::new())
    }

    /// Damaged and given-up messages are dealt with here, and never seen by a consumer.
    async fn take_once(&self, max: usize, wait_ms: u64) -> Result<(Vec<Claim>, bool), LedgerError> {
        let Self { gateway, queue, kept, mode } = self;
        let mut claims = match mode {
            PullMode::Consume => gateway.queues.pop((*queue).clone(), max, wait_ms).await?,
            PullMode::Reserve => {
                let (queue, lease_ms) = ((*queue).clone(), kept.lease_ms);
                gateway.ledger.claim(ClaimRequest { queue, max, lease_ms, wait_ms }).await?
            }
        };
        let mut hopeless = Vec::new();
        claims.retain(|claim| {
            let reason = if claim.body.is_none() {
                tracing::error!(message_id = %claim.id, %queue, "the message is damaged on disk and not handed out");
                "damaged on disk".to_owned()
            } else if *mode == PullMode::Reserve && claim.failures >= kept.attempts_max {
                // The ledger ends those whose last lease has ended; here are those whose bound was lowered since.
                lapsed_reason(claim.failures)
            } else {
                return true;
            };
            let outcome = Outcome::GivenUp { reason };
            hopeless.push(Settlement { id: claim.id, token: claim.token, outcome, latency_ms: 0 });
            false
        });
        let met_hopeless = !hopeless.is_empty();
        // A popped message has ended already; a leased one ends here.
        if *mode == PullMode::Reserve && met_hopeless {
            let settled = gateway.ledger.settle(hopeless.clone()).await?;
            let done = hopeless.iter().zip(settled).filter(|(_, settled)| *settled == Settled::Done);
            let tally = gateway.stats.of(queue);
            done.for_each(|(settlement, _)| tally.settled(settlement));
        }
        Ok((claims, met_hopeless))
    }
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

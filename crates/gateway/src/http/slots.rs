mod answer;
mod event;

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::{HeaderValue, StatusCode};
use tidegate_domain::{
    EventId, Forecast, MessageRecord, Released, Reservation, Reserved, Slot, SlotConfigName, SlotMessage,
};
use tidegate_edge::{ApiError, FieldError, Principal, read_json};

use self::answer::{
    ForecastAnswer, ItemAnswer, SlotAnswer, message_conflict, no_capacity, outcome, slot_used, unknown_event,
};
use super::answer::{iso, json, put_durability};
use super::bus::put_degraded;
use super::failure::{check_writable, from_ledger, full, overloaded};
use super::fields::{Name, REQUESTED_TIME};
use super::times::instant;
use super::{Gateway, query, trace};

pub use self::answer::unknown_config;

const CONFIG: Name = Name::new("config", "configName");

/// `POST /api/v1/slots`: the first slot at or after the requested time; the same event gets the same slot.
pub async fn assign(
    State(gateway): State<Arc<Gateway>>,
    _principal: Principal,
    request: Request,
) -> Result<Response, ApiError> {
    check_writable(gateway.ledger.health())?;
    let _permit = gateway.intake.try_acquire().map_err(|_| overloaded())?;
    let trace = trace::of_request(request.headers());
    let asked = event::read_one(&gateway, read_json(request, &gateway.limits).await?, trace.as_deref())?;
    let (config, requested, message) = (asked.config.clone(), asked.requested, asked.message.clone());
    let degraded = waits_for_bus(&gateway, message.as_ref());
    let reserved = reserve(&gateway, vec![asked]).await?.pop();
    if let (Some(Reserved::Existing(slot)), Some(message)) = (&reserved, &message)
        && !carries(&gateway, slot, message).await?
    {
        return Err(message_conflict(slot));
    }
    let durability = gateway.ledger.durability();
    let mut response = match &reserved {
        Some(Reserved::Assigned(slot) | Reserved::Existing(slot)) => {
            json(StatusCode::OK, &SlotAnswer::new(slot).stored(durability).degraded(degraded))?
        }
        Some(Reserved::UnknownConfig) => return Err(unknown_config(&config)),
        Some(Reserved::NoRoom) => return Err(no_capacity(&config, requested)),
        Some(Reserved::Full) => return Err(full()),
        None => return Err(ApiError::internal("the ledger gave no answer for a reservation")),
    };
    if matches!(reserved, Some(Reserved::Existing(_))) {
        response.headers_mut().insert("idempotent-replay", HeaderValue::from_static("true"));
    }
    put_durability(response.headers_mut(), durability);
    put_degraded(response.headers_mut(), degraded);
    Ok(response)
}

/// `POST /api/v1/slots/batch`: one result per event, in order. One commit, unless so much open time is full that the ledger
/// looks for places in several steps; whoever asks again gets the same slots.
pub async fn assign_many(
    State(gateway): State<Arc<Gateway>>,
    _principal: Principal,
    request: Request,
) -> Result<Response, ApiError> {
    check_writable(gateway.ledger.health())?;
    let _permit = gateway.intake.try_acquire().map_err(|_| overloaded())?;
    let trace = trace::of_request(request.headers());
    let batch =
        event::read_many(&gateway, read_json(request, &gateway.batch_limits).await?, trace.as_deref())?;
    let events: Vec<_> = batch.iter().map(|asked| (asked.event.clone(), asked.message.clone())).collect();
    let reserved = reserve(&gateway, batch).await?;
    let mut answers = Vec::with_capacity(events.len());
    for ((event, message), reserved) in events.iter().zip(&reserved) {
        let conflict = match (reserved, message) {
            (Reserved::Existing(slot), Some(message)) => !carries(&gateway, slot, message).await?,
            _ => false,
        };
        let degraded = waits_for_bus(&gateway, message.as_ref());
        answers.push(if conflict {
            ItemAnswer::conflict(event)
        } else {
            ItemAnswer::new(event, reserved, degraded)
        });
    }
    let mut response = json(StatusCode::OK, &answers)?;
    put_degraded(response.headers_mut(), answers.iter().any(ItemAnswer::is_degraded));
    put_durability(response.headers_mut(), gateway.ledger.durability());
    Ok(response)
}

/// `GET /api/v1/slots/{eventId}`
pub async fn show(
    State(gateway): State<Arc<Gateway>>,
    _principal: Principal,
    Path(event): Path<String>,
) -> Result<Response, ApiError> {
    let event = event_id(&event)?;
    match gateway.slots.slot(event.clone()).await.map_err(from_ledger)? {
        Some(slot) => json(StatusCode::OK, &SlotAnswer::new(&slot)),
        None => Err(unknown_event(&event)),
    }
}

/// `DELETE /api/v1/slots/{eventId}`: gives the slot back, and takes its message back if that still waits.
pub async fn release(
    State(gateway): State<Arc<Gateway>>,
    _principal: Principal,
    Path(event): Path<String>,
) -> Result<Response, ApiError> {
    let event = event_id(&event)?;
    check_writable(gateway.ledger.health())?;
    match gateway.slots.release(event.clone()).await.map_err(from_ledger)? {
        Released::Released(slot) => {
            tracing::debug!(event_id = %event, "slot given back");
            metrics::counter!("tidegate_slots_released_total").increment(1);
            let durability = gateway.ledger.durability();
            let mut response = json(StatusCode::OK, &SlotAnswer::new(&slot).stored(durability))?;
            put_durability(response.headers_mut(), durability);
            Ok(response)
        }
        Released::UnknownEvent => Err(unknown_event(&event)),
        Released::Used(slot) => Err(slot_used(&slot)),
    }
}

/// `GET /api/v1/slots/forecast`: where an event would land now. Takes nothing.
pub async fn forecast(
    State(gateway): State<Arc<Gateway>>,
    _principal: Principal,
    request: Request,
) -> Result<Response, ApiError> {
    let mut fields = query::fields(request.uri());
    let config =
        fields.parsed_or(CONFIG, || gateway.slot_settings.default_config.clone(), SlotConfigName::new);
    let requested = fields.parsed(REQUESTED_TIME, instant);
    fields.finish()?;
    let (Some(config), Some(requested)) = (config, requested) else {
        return Err(ApiError::internal("a field without a value and without a fault"));
    };
    let jitter = gateway.randomness.next();
    match gateway.slots.forecast(config.clone(), requested, jitter).await.map_err(from_ledger)? {
        Forecast::At { window_start, scheduled } => {
            let answer = ForecastAnswer {
                config_name: config.as_str(),
                requested_time: iso(requested),
                window_start: iso(window_start),
                scheduled_time: iso(scheduled),
                delay_ms: scheduled.since_ms(requested),
            };
            json(StatusCode::OK, &answer)
        }
        Forecast::UnknownConfig => Err(unknown_config(&config)),
        Forecast::NoRoom => Err(no_capacity(&config, requested)),
    }
}

/// Reserves, and says in logs and metrics what came of it. Nothing is reserved for messages that the bus is to take, while
/// that is away and `bus.when_down` says "reject".
async fn reserve(gateway: &Gateway, batch: Vec<Reservation>) -> Result<Vec<Reserved>, ApiError> {
    gateway
        .is_degraded(batch.iter().filter_map(|asked| asked.message.as_ref()).map(|message| &message.queue))?;
    let first = batch.first().map(|asked| (asked.event.clone(), asked.config.clone()));
    let reserved = gateway.slots.reserve(batch).await.map_err(from_ledger)?;
    let mut counts: Vec<(&'static str, u64)> = Vec::new();
    for one in &reserved {
        match one {
            Reserved::Assigned(slot) => {
                tracing::debug!(event_id = %slot.event, window_ms = slot.window_start.millis(), "assigned slot");
            }
            Reserved::Existing(slot) => tracing::debug!(event_id = %slot.event, "idempotent hit"),
            Reserved::UnknownConfig | Reserved::NoRoom | Reserved::Full => {}
        }
        let outcome = outcome(one);
        match counts.iter_mut().find(|(known, _)| *known == outcome) {
            Some((_, count)) => *count += 1,
            None => counts.push((outcome, 1)),
        }
    }
    for (outcome, count) in counts {
        metrics::counter!("tidegate_slots_total", "outcome" => outcome).increment(count);
        if let ("no_capacity", Some((event, config))) = (outcome, &first) {
            // One line per request, however many events it brings.
            tracing::error!(events = count, first_event_id = %event, %config, "could not assign slots: no window has room");
        }
    }
    Ok(reserved)
}

/// Whether an event's message has to wait for the bus, now or when it is due.
fn waits_for_bus(gateway: &Gateway, message: Option<&SlotMessage>) -> bool {
    let holds_back =
        |message: &SlotMessage| gateway.bus.as_ref().is_some_and(|bus| bus.holds_back(&message.queue));
    message.is_some_and(holds_back)
}

/// Whether an event's slot goes with that message. An event keeps what it was first given; another message must not
/// vanish behind an answer that sounds like success.
async fn carries(gateway: &Gateway, slot: &Slot, asked: &SlotMessage) -> Result<bool, ApiError> {
    let Some(id) = slot.message else { return Ok(false) };
    let kept = gateway.ledger.message(id).await.map_err(from_ledger)?;
    let same = |kept: MessageRecord| {
        kept.queue == asked.queue
            && kept.recipient == asked.recipient
            && kept.body.bytes() == Some(&asked.body)
    };
    // One that retention has removed was sent, and there is nothing left to compare with.
    Ok(kept.is_none_or(same))
}

fn event_id(text: &str) -> Result<EventId, ApiError> {
    EventId::new(text).map_err(|wrong| ApiError::invalid_fields(vec![FieldError::new("eventId", wrong.0)]))
}

use http::StatusCode;
use serde::Serialize;
use tidegate_domain::{Durability, EventId, Reserved, Slot, SlotConfigName, Timestamp};
use tidegate_edge::ApiError;

use crate::http::answer::{iso, weaker_durability};

const MESSAGE_CONFLICT: &str = "message_conflict";
/// Only a release or another configuration makes room: no use in asking at once.
const NO_CAPACITY_RETRY_MS: u64 = 60_000;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SlotAnswer<'a> {
    event_id: &'a str,
    scheduled_time: String,
    delay_ms: u64,
    window_start: String,
    config_name: &'a str,
    requested_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<&'static str>,
    /// Its message waits for the bus.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    degraded: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForecastAnswer<'a> {
    pub config_name: &'a str,
    pub requested_time: String,
    pub window_start: String,
    pub scheduled_time: String,
    pub delay_ms: u64,
}

/// One result of a batch.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemAnswer<'a> {
    event_id: &'a str,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduled_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    degraded: bool,
}

impl<'a> SlotAnswer<'a> {
    pub fn new(slot: &'a Slot) -> Self {
        Self {
            event_id: slot.event.as_str(),
            scheduled_time: iso(slot.scheduled),
            delay_ms: slot.scheduled.since_ms(slot.requested),
            window_start: iso(slot.window_start),
            config_name: slot.config.as_str(),
            requested_time: iso(slot.requested),
            message_id: slot.message.map(|id| id.to_string()),
            durability: None,
            degraded: false,
        }
    }

    /// For answers that promise something.
    pub fn stored(mut self, durability: Durability) -> Self {
        self.durability = weaker_durability(durability);
        self
    }

    pub fn degraded(mut self, degraded: bool) -> Self {
        self.degraded = degraded;
        self
    }
}

impl<'a> ItemAnswer<'a> {
    pub fn new(event: &'a EventId, reserved: &Reserved, degraded: bool) -> Self {
        let slot = match reserved {
            Reserved::Assigned(slot) | Reserved::Existing(slot) => Some(slot),
            Reserved::UnknownConfig | Reserved::NoRoom | Reserved::Full => None,
        };
        Self {
            event_id: event.as_str(),
            status: outcome(reserved),
            scheduled_time: slot.map(|slot| iso(slot.scheduled)),
            delay_ms: slot.map(|slot| slot.scheduled.since_ms(slot.requested)),
            message_id: slot.and_then(|slot| slot.message).map(|id| id.to_string()),
            degraded: degraded && slot.is_some(),
        }
    }

    /// See [`message_conflict`].
    pub fn conflict(event: &'a EventId) -> Self {
        Self {
            event_id: event.as_str(),
            status: MESSAGE_CONFLICT,
            scheduled_time: None,
            delay_ms: None,
            message_id: None,
            degraded: false,
        }
    }

    pub fn is_degraded(&self) -> bool {
        self.degraded
    }
}

/// The event has a slot with another message, or with none.
pub fn message_conflict(slot: &Slot) -> ApiError {
    let what = if slot.message.is_some() { "another message" } else { "no message" };
    let message = format!(
        "event {} has its slot already, with {what}; nothing was stored. Use another eventId, or give the slot back first",
        slot.event
    );
    let error = ApiError::new(StatusCode::CONFLICT, MESSAGE_CONFLICT, message);
    match slot.message {
        Some(id) => error.with("messageId", id.to_string().into()),
        None => error,
    }
}

/// As in a batch's results and in the metrics.
pub fn outcome(reserved: &Reserved) -> &'static str {
    match reserved {
        Reserved::Assigned(_) => "assigned",
        Reserved::Existing(_) => "existing",
        Reserved::UnknownConfig => "unknown_config",
        Reserved::NoRoom => "no_capacity",
        Reserved::Full => "ledger_full",
    }
}

pub fn unknown_config(name: &SlotConfigName) -> ApiError {
    let message =
        format!("there is no slot configuration {name}; create one with POST /admin/rate-limit/config");
    ApiError::not_found("unknown_config", message)
}

pub fn unknown_event(event: &EventId) -> ApiError {
    ApiError::not_found("unknown_event", format!("event {event} has no slot"))
}

pub fn no_capacity(name: &SlotConfigName, requested: Timestamp) -> ApiError {
    let message = format!(
        "no window of {name} within its headroom from {} has room; ask for a later time, or raise maxPerWindow or \
         headroomWindows",
        iso(requested)
    );
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no_capacity", message)
        .retry_after_ms(NO_CAPACITY_RETRY_MS)
}

pub fn slot_used(slot: &Slot) -> ApiError {
    let message = format!(
        "the slot of event {} is used: its message is being sent, was sent, or was taken back on its own",
        slot.event
    );
    let error = ApiError::new(StatusCode::CONFLICT, "slot_used", message);
    match slot.message {
        Some(id) => error.with("messageId", id.to_string().into()),
        None => error,
    }
}

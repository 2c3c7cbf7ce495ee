use bytes::Bytes;
use serde_json::{Map, Value};
use tidegate_domain::{EventId, Headers, Lane, Reservation, SlotConfigName, SlotMessage};
use tidegate_edge::ApiError;

use crate::http::admission::configured;
use crate::http::envelope::{NO_RECIPIENT, RECIPIENT, needs_recipient};
use crate::http::fields::{CONFIG_NAME, Fields, MESSAGE, Name, PRIORITY, REQUESTED_TIME};
use crate::http::times::instant;
use crate::http::{Gateway, envelope, trace};

const EVENT_ID: Name = Name::new("eventId", "event_id");
const EVENTS: Name = Name::new("events", "events");
const QUEUE: Name = Name::new("queue", "queue");
const BODY: Name = Name::new("body", "body");

/// Names that stand in the paths of slots themselves: an event called so could not be looked up.
const RESERVED: [&str; 2] = ["forecast", "batch"];

/// The one event of a request, or every fault of it.
pub fn read_one(
    gateway: &Gateway,
    object: Map<String, Value>,
    trace: Option<&str>,
) -> Result<Reservation, ApiError> {
    let mut fields = Fields::new(object);
    let event = read(gateway, &mut fields, trace);
    fields.finish()?;
    event.ok_or_else(|| ApiError::internal("a field without a value and without a fault"))
}

/// All events of a batch, or every fault of any: nothing is assigned before all of it makes sense.
pub fn read_many(
    gateway: &Gateway,
    object: Map<String, Value>,
    trace: Option<&str>,
) -> Result<Vec<Reservation>, ApiError> {
    let max = gateway.slot_settings.batch_max;
    let mut fields = Fields::new(object);
    let mut events = Vec::new();
    match fields.required(EVENTS) {
        Some(Value::Array(items)) if (1..=max).contains(&items.len()) => {
            events.reserve(items.len());
            for (place, item) in items.into_iter().enumerate() {
                let Value::Object(object) = item else {
                    fields.fault_at(format_args!("events[{place}]"), "must be an object");
                    continue;
                };
                let mut inner = Fields::new(object);
                events.extend(read(gateway, &mut inner, trace));
                fields.absorb(inner, format_args!("events[{place}]"));
            }
        }
        Some(_) => {
            fields.fault::<()>(EVENTS, &format!("must be an array of 1 to {max} events"));
        }
        None => {}
    }
    fields.finish().map(|()| events)
}

fn read(gateway: &Gateway, fields: &mut Fields, trace: Option<&str>) -> Option<Reservation> {
    let event = fields.parsed(EVENT_ID, |text| {
        if RESERVED.contains(&text) {
            return Err(format!("must not be {text:?}: that name is taken by /api/v1/slots/{text}"));
        }
        EventId::new(text).map_err(|wrong| wrong.to_string())
    });
    let config =
        fields.parsed_or(CONFIG_NAME, || gateway.slot_settings.default_config.clone(), SlotConfigName::new);
    let requested = fields.parsed(REQUESTED_TIME, instant);
    let mut message = read_message(gateway, fields);
    if let Some(Some(message)) = &mut message {
        trace::add(&mut message.headers, trace);
    }
    let jitter = gateway.randomness.next();
    Some(Reservation { event: event?, config: config?, requested: requested?, jitter, message: message? })
}

/// A text alone, or an object that also says where and to whom.
#[expect(clippy::option_option, reason = "the outer one says whether there was a fault")]
fn read_message(gateway: &Gateway, fields: &mut Fields) -> Option<Option<SlotMessage>> {
    match fields.take(MESSAGE) {
        None | Some(Value::Null) => Some(None),
        Some(Value::String(_)) if needs_recipient(gateway, &gateway.queue) => fields
            .fault(MESSAGE, "must be an object with recipient and body: devices read the queue's messages"),
        Some(Value::String(text)) if !text.trim().is_empty() => Some(Some(SlotMessage {
            queue: gateway.queue.clone(),
            recipient: None,
            lane: Lane::default(),
            headers: Headers::default(),
            body: Bytes::from(text),
        })),
        Some(Value::Object(object)) => {
            let mut inner = Fields::new(object);
            let message = read_object(gateway, &mut inner);
            fields.absorb(inner, "message");
            message.map(Some)
        }
        Some(_) => {
            fields.fault(MESSAGE, "must be a string that is not blank, or an object with recipient and body")
        }
    }
}

fn read_object(gateway: &Gateway, fields: &mut Fields) -> Option<SlotMessage> {
    let queue = fields.parsed_or(QUEUE, || gateway.queue.clone(), |text| configured(gateway, text));
    let recipient = match fields.take(RECIPIENT) {
        Some(Value::Null) => Some(None),
        Some(Value::String(text)) => match envelope::recipient(&text) {
            Ok(recipient) => Some(Some(recipient)),
            Err(wrong) => fields.fault(RECIPIENT, wrong),
        },
        Some(_) => fields.fault(RECIPIENT, "must be a string or null"),
        None => {
            fields.fault(RECIPIENT, "is missing: say whom it goes to, or null if its order is of no matter")
        }
    };
    if let (Some(queue), Some(None)) = (&queue, &recipient)
        && needs_recipient(gateway, queue)
    {
        fields.fault::<()>(RECIPIENT, NO_RECIPIENT);
    }
    let (lane, body) = (fields.lane(PRIORITY), fields.text(BODY));
    let headers = Headers::default();
    Some(SlotMessage { queue: queue?, recipient: recipient?, lane: lane?, headers, body: Bytes::from(body?) })
}

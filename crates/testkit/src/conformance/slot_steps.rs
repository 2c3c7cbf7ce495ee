use tidegate_domain::limits::slot::{Calendar, SlotRule};
use tidegate_domain::{
    EventId, Forecast, Released, Reservation, Reserved, Slot, SlotConfig, SlotConfigName, SlotConfigPut,
    SlotMessage, Timestamp,
};

use super::Draft;
use crate::{Harness, TestClock};

pub const WINDOW_MS: u64 = 4_000;

/// A reservation in the making: `ask("pay-1").after_ms(500).with(sms("paid"))`.
#[derive(Debug, Clone)]
pub struct Ask(pub Reservation);

/// For the very start of a window, in the configuration `default`, without jitter or message.
pub fn ask(event_id: &str) -> Ask {
    Ask(Reservation {
        event: event(event_id),
        config: slot_config("default"),
        requested: TestClock::START,
        jitter: 0,
        message: None,
    })
}

pub fn event(id: &str) -> EventId {
    EventId::new(id).expect("a valid event id")
}

pub fn slot_config(name: &str) -> SlotConfigName {
    SlotConfigName::new(name).expect("a valid name")
}

/// Windows of four seconds, a hundred of them beyond the requested one.
pub fn per_window(max_per_window: u32) -> SlotRule {
    SlotRule { max_per_window, window_ms: WINDOW_MS, headroom_windows: 100, calendar: Calendar::default() }
}

/// So long after the start of the windows that the cases count in.
pub fn at_ms(ms: u64) -> Timestamp {
    TestClock::START.plus_ms(ms)
}

impl Ask {
    pub fn after_ms(mut self, ms: u64) -> Self {
        self.0.requested = at_ms(ms);
        self
    }

    pub fn jitter(mut self, jitter: u64) -> Self {
        self.0.jitter = jitter;
        self
    }

    pub fn of(mut self, config: &str) -> Self {
        self.0.config = slot_config(config);
        self
    }

    /// The draft's queue, recipient, lane, headers and body; the slot says when it is due.
    pub fn with(mut self, draft: Draft) -> Self {
        let Draft(admission) = draft;
        self.0.message = Some(SlotMessage {
            queue: admission.queue,
            recipient: admission.recipient,
            lane: admission.lane,
            headers: admission.headers,
            body: admission.body,
        });
        self
    }
}

/// One step each, with the books checked after it.
impl Harness {
    pub async fn put_slots(&self, name: &str, rule: SlotRule) -> SlotConfig {
        match self.try_put_slots(name, rule).await {
            SlotConfigPut::Stored(config) => config,
            refused => panic!("not stored: {refused:?}"),
        }
    }

    pub async fn try_put_slots(&self, name: &str, rule: SlotRule) -> SlotConfigPut {
        self.slots().put_slot_config(slot_config(name), rule).await.expect("put_slot_config")
    }

    pub async fn slot_versions(&self, name: &str) -> Vec<SlotConfig> {
        self.slots().slot_config(slot_config(name)).await.expect("slot_config")
    }

    pub async fn reserve(&self, asks: impl IntoIterator<Item = Ask>) -> Vec<Reserved> {
        let batch: Vec<_> = asks.into_iter().map(|ask| ask.0).collect();
        let expected = batch.len();
        let reserved = self.slots().reserve(batch).await.expect("reserve");
        assert_eq!(reserved.len(), expected, "one answer per item");
        self.counts().await;
        reserved
    }

    pub async fn reserve_one(&self, ask: Ask) -> Reserved {
        self.reserve([ask]).await.remove(0)
    }

    /// Reserves for an event that nothing stands against.
    pub async fn assign(&self, ask: Ask) -> Slot {
        assigned(self.reserve_one(ask).await)
    }

    pub async fn slot_of(&self, event_id: &str) -> Option<Slot> {
        self.slots().slot(event(event_id)).await.expect("slot")
    }

    pub async fn release(&self, event_id: &str) -> Released {
        let released = self.slots().release(event(event_id)).await.expect("release");
        self.counts().await;
        released
    }

    pub async fn forecast(&self, ask: &Ask) -> Forecast {
        let asked = &ask.0;
        let forecast = self.slots().forecast(asked.config.clone(), asked.requested, asked.jitter).await;
        forecast.expect("forecast")
    }
}

pub fn assigned(reserved: Reserved) -> Slot {
    match reserved {
        Reserved::Assigned(slot) => slot,
        other => panic!("not assigned: {other:?}"),
    }
}

/// Which window a slot is in, counted from the one that begins at the cases' start.
pub fn window(slot: &Slot) -> u64 {
    let since_ms = slot.window_start.since_ms(TestClock::START);
    assert!(since_ms.is_multiple_of(WINDOW_MS), "aligned to the epoch: {slot:?}");
    assert!(slot.scheduled >= slot.window_start, "{slot:?}");
    assert!(slot.scheduled < slot.window_start.plus_ms(WINDOW_MS), "{slot:?}");
    since_ms / WINDOW_MS
}

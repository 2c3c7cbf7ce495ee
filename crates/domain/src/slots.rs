use std::fmt::Debug;

use async_trait::async_trait;
use bytes::Bytes;

use crate::limits::slot::SlotRule;
use crate::{
    EventId, Headers, Lane, LedgerError, MessageId, QueueName, Recipient, SlotConfigName, Timestamp,
};

/// The ledger's slots: capacity in future windows, reserved event by event.
///
/// `Ok` promises the same durability as on the Ledger port, and the same errors mean the same. No window ever
/// holds more slots than its configuration allowed when they were taken.
#[async_trait]
pub trait Slots: Debug + Send + Sync + 'static {
    /// Makes a new version the active one. The former versions are kept. Windows keep what they hold: a larger
    /// maximum opens them again, a smaller one leaves them full. Windows of another size hold all slots that lie in them.
    async fn put_slot_config(
        &self,
        name: SlotConfigName,
        rule: SlotRule,
    ) -> Result<SlotConfigPut, LedgerError>;

    /// All versions, the active one first; empty when there is no such configuration.
    async fn slot_config(&self, name: SlotConfigName) -> Result<Vec<SlotConfig>, LedgerError>;

    /// Gives each event the first slot at or after its requested time, and admits its message, due then, in the
    /// same commit: both or neither. An event that has a slot already gets that one again, whatever it asks for.
    async fn reserve(&self, batch: Vec<Reservation>) -> Result<Vec<Reserved>, LedgerError>;

    async fn slot(&self, event: EventId) -> Result<Option<Slot>, LedgerError>;

    /// Gives a slot back, and deletes its message if that is still waiting.
    async fn release(&self, event: EventId) -> Result<Released, LedgerError>;

    /// Where an event would land now. Takes nothing and promises nothing.
    async fn forecast(
        &self,
        config: SlotConfigName,
        requested: Timestamp,
        jitter: u64,
    ) -> Result<Forecast, LedgerError>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotConfig {
    pub name: SlotConfigName,
    /// Counts from 1.
    pub version: u32,
    pub rule: SlotRule,
    pub created_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlotConfigPut {
    Stored(SlotConfig),
    /// The window size can't change while slots lie ahead: their windows would lose their meaning. The last of
    /// them ends then.
    WindowSizeInUse {
        window_ms: u64,
        until: Timestamp,
    },
    /// As many configurations or versions as the ledger may hold.
    Full,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    pub event: EventId,
    pub config: SlotConfigName,
    pub requested: Timestamp,
    /// Any number, chosen at random: spreads events within their window.
    pub jitter: u64,
    pub message: Option<SlotMessage>,
}

/// A message that goes out at its event's scheduled time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotMessage {
    pub queue: QueueName,
    pub recipient: Option<Recipient>,
    pub lane: Lane,
    /// What travels with the body.
    pub headers: Headers,
    pub body: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    pub event: EventId,
    pub config: SlotConfigName,
    pub requested: Timestamp,
    pub scheduled: Timestamp,
    pub window_start: Timestamp,
    pub created_at: Timestamp,
    pub message: Option<MessageId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reserved {
    Assigned(Slot),
    /// The event had this one already.
    Existing(Slot),
    UnknownConfig,
    /// No window within the headroom has room.
    NoRoom,
    /// As many slots or messages as the ledger may hold.
    Full,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Released {
    Released(Slot),
    UnknownEvent,
    /// Its message is being sent, or was: the slot is used.
    Used(Slot),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forecast {
    At { window_start: Timestamp, scheduled: Timestamp },
    UnknownConfig,
    NoRoom,
}

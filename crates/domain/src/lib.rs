//! What Tidegate decides, without any I/O: messages and their order, limits, retries, and the ports
//! through which the rest of the world is reached.
//!
//! Architecture invariant: nothing in this crate opens a file or a socket, spawns a task, or asks the
//! machine for the time or for randomness. All of it can run under a simulator.

mod breaker;
mod bus;
mod channel;
mod counted;
mod deliver;
mod headers;
mod idempotency;
mod ledger;
pub mod limits;
mod message;
mod queues;
mod reason;
mod retry;
mod slots;
mod time;
pub mod transfer;
mod transit;
mod turn;

pub use breaker::{Breaker, BreakerRule, BreakerState, Change};
pub use bus::{Bus, BusError, BusHealth, Consumer};
pub use channel::{Channel, Delivery};
pub use counted::counted;
pub use deliver::outcome_of;
pub use headers::{CONTENT_KEY, InvalidHeader};
pub use idempotency::{Fingerprint, Idempotency, IdempotencyKey};
pub use ledger::{
    ATTEMPT_BYTES, Admission, Admitted, Advanced, AttemptRecord, AttemptResult, BATCH_BYTES_MAX, Body, Claim,
    ClaimRequest, Counts, Due, Durability, Headers, Health, Ledger, LedgerError, MessageRecord, OnLimit,
    Outcome, Settled, Settlement, Status,
};
pub use message::{EventId, InvalidName, Lane, MessageId, QueueName, Recipient, SlotConfigName, UserId};
pub use queues::{
    Acked, Cancelled, Damaged, Extension, Filter, Listing, Order, Page, PickUp, QueueCounts, QueueRule,
    Queues, Requeue, Requeued, has_room,
};
pub use reason::{REASON_BYTES_MAX, cut_reason, lapsed_reason};
pub use retry::RetryPolicy;
pub use slots::{
    Forecast, Released, Reservation, Reserved, Slot, SlotConfig, SlotConfigPut, SlotMessage, Slots,
};
pub use time::{Clock, Timestamp};
pub use transit::{Begun, Transit};
pub use turn::Turn;

//! The ledger on PostgreSQL: any number of gateways and senders share one.
//!
//! What decides stands in SQL functions (`migrations/`), one for each operation: a batch is one round trip and one
//! transaction. Time is the database's, through one function. This crate collects calls into batches, waits for what
//! is due, and says what an error means.
//!
//! Architecture invariants: no clock of this process decides anything. Locks are taken in one order: dead letters,
//! quotas, slots, chains, messages, keys, books; within each by key. Whoever can't follow that order waits for nothing
//! that it does not hold the chain of (`SKIP LOCKED`).

mod admit;
mod batch;
mod claims;
mod clock;
mod codes;
mod connection;
mod counts;
mod error;
mod hand;
mod ledger;
mod lists;
mod migrations;
mod open;
mod options;
mod parties;
mod pick_up;
mod queues;
mod quotas;
mod records;
mod reserve;
mod retire;
mod settle;
mod slot_configs;
mod slots;
mod sweep;
mod tidy;
mod transfer;
mod transit;
mod wakes;

pub use clock::ServerClock;
pub use connection::{SessionHook, check_roots, check_url};
pub use error::OpenError;
pub use migrations::migrate;
pub use open::Postgres;
pub use options::{Options, Tls};
pub use transfer::{export, import};

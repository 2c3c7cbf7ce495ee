//! What the tests of every crate share: the naive model of a ledger, the conformance cases of its ports
//! (Ledger, Slots, Queues and Transit), the driver that compares a ledger with the model, and the oracle outside the product (a
//! journaling load client, a journaling provider, and the judge of both).
//!
//! Architecture invariant: depends on the domain alone. An adapter brings its own [`Backend`] and is tested
//! from its own crate.

pub mod buckets;
pub mod bus;
mod clock;
pub mod cluster;
pub mod conformance;
pub mod drive;
mod harness;
pub mod journal;
pub mod judge;
pub mod load;
mod model;
mod powercut;
mod process;
mod provider;
pub mod seeds;
pub mod services;
mod sys;

use std::time::Duration;

pub use clock::TestClock;
pub use harness::{BRIEF, Backend, FAIR, Harness, LOOSE, NARROW, Opened, Setup, transfer};
pub use model::{ModelBackend, ModelLedger};
pub use powercut::{Disk, can_cut_power};
pub use process::{Gateway, Launch, metric_in};
pub use provider::{Attempt, FakeProvider, Step, WebProvider};

/// Ends a wait that would not end by itself, and bounds nothing else: far longer than anything takes on a busy machine.
pub const HANG: Duration = Duration::from_secs(180);

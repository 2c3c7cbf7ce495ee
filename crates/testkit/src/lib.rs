//! What the tests of every crate share: the naive model of a ledger, the conformance cases of the Ledger
//! port, the driver that compares a ledger with the model, and the oracle outside the product (a journaling
//! load client, a journaling provider, and the judge of both).
//!
//! Architecture invariant: depends on the domain alone. An adapter brings its own [`Backend`] and is tested
//! from its own crate.

mod clock;
pub mod conformance;
pub mod drive;
mod harness;
mod model;

pub use clock::TestClock;
pub use harness::{Backend, Harness, Setup};
pub use model::{ModelBackend, ModelLedger};

//! The ports of `tidegate-domain`, on real engines.
//!
//! Architecture invariant: adapters never import each other; only the gateway's wiring names them.

pub mod buckets;
pub mod channels;
mod clock;
pub mod embedded;

pub use clock::SystemClock;

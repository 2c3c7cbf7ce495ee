//! Limits that several gateways share, on Redis: the store of the policies' buckets, and the quota accelerator.
//!
//! Architecture invariant: a request waits for Redis no longer than the call's deadline, and not at all while Redis
//! is known to be away. What Redis decides, it decides in one script, by its own clock.

pub mod buckets;
mod endpoint;
mod link;
pub mod quotas;
mod script;

pub use endpoint::{BadRoots, BadUrl, Endpoint};

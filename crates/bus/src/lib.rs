//! What the buses have in common: the record that travels, where it goes, and the order in which lanes are served.

mod lanes;
mod record;
mod routes;

pub use lanes::Lanes;
pub use record::{CONTENT_TYPE, Malformed, decode, encode, key, traceparent};
pub use routes::Routes;

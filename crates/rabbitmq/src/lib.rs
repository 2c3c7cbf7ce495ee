//! The bus on RabbitMQ: a direct exchange, one durable quorum queue per lane, and a queue for dead records beside them.
//!
//! Architecture invariant: publishing and receiving have a connection each. A broker that is low on memory stops reading
//! from whoever publishes, and what has been received must be acknowledged nevertheless.

mod bus;
mod complaints;
mod consumer;
mod endpoint;
mod error;
mod link;
mod options;
mod publisher;
mod session;
mod topology;
mod wire;

pub use bus::{RabbitBus, check_roots, check_url};
pub use error::OpenError;
pub use options::Options;

//! The bus on Kafka: records keyed by recipient, acknowledged by all replicas; senders are consumer groups, one per
//! queue.
//!
//! The client is librdkafka, built without OpenSSL: connections are in the clear, with a login by SASL/PLAIN at most.
//! TLS is not here yet.
//!
//! Architecture invariant: nothing waits for Kafka longer than its deadline. What blocks (metadata, polling, leaving a
//! group) happens in threads of its own: one watches the cluster, and each consumer has one.

mod bus;
mod client;
mod consumer;
mod options;
mod producer;
mod standing;
mod topics;
mod watch;

pub use bus::KafkaBus;
pub use options::{Login, OpenError, Options};

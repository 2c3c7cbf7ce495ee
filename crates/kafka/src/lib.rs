//! The bus on Kafka: records keyed by recipient, acknowledged by all replicas; senders are consumer groups, one per
//! queue.
//!
//! The client is librdkafka. It does TLS, and logins by SCRAM, with OpenSSL alone, which is why this gateway has that
//! beside rustls: linked from the system, and left out without the feature `tls`.
//!
//! Architecture invariant: nothing waits for Kafka longer than its deadline. What blocks (metadata, polling, leaving a
//! group) happens in threads of its own: one watches the cluster, and each consumer has one.

mod bus;
mod client;
mod consumer;
mod options;
mod producer;
mod reason;
mod standing;
mod tls;
mod topics;
mod watch;

pub use bus::KafkaBus;
pub use options::{Login, Mechanism, OpenError, Options};
pub use tls::{Identity, TLS, Tls, TlsError};

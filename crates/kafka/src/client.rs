//! What all clients of Kafka have in common: their settings, and whom they tell.

use std::sync::Arc;

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::{ClientConfig, ClientContext};
use tidegate_domain::BusError;

use crate::options::Options;
use crate::standing::Standing;

/// For a connection that is not for consuming in a group.
pub struct Events(pub Arc<Standing>);

impl ClientContext for Events {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        log(level, facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.hear(error.rdkafka_error_code(), reason);
    }
}

impl ConsumerContext for Events {}

/// The client repeats itself while Kafka is away, and whoever handles that logs it once: this is for those who look
/// closer.
pub fn log(level: RDKafkaLogLevel, facility: &str, text: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            tracing::error!(facility, "Kafka client: {text}");
        }
        _ => tracing::debug!(facility, "Kafka client: {text}"),
    }
}

/// Found back within a second, whatever has happened meanwhile.
pub fn settings(options: &Options) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &options.bootstrap_servers);
    config.set("client.id", "tidegate");
    config.set("socket.timeout.ms", "5000");
    config.set("socket.connection.setup.timeout.ms", "3000");
    config.set("socket.keepalive.enable", "true");
    config.set("reconnect.backoff.ms", "50");
    config.set("reconnect.backoff.max.ms", "500");
    config.set("retry.backoff.ms", "50");
    config.set("retry.backoff.max.ms", "500");
    config.set("topic.metadata.refresh.interval.ms", "3000");
    config.set_log_level(RDKafkaLogLevel::Warning);
    if let Some(tls) = &options.tls {
        tls.apply(&mut config);
    }
    if let Some(login) = &options.login {
        let protocol = if options.tls.is_some() { "sasl_ssl" } else { "sasl_plaintext" };
        config.set("security.protocol", protocol).set("sasl.mechanism", login.mechanism.name());
        config.set("sasl.username", &login.user).set("sasl.password", &login.password);
    }
    config
}

/// What an error means to whoever published or received.
pub fn bus_error(code: Option<Code>, what: &str, error: &dyn std::fmt::Display) -> BusError {
    let text = format!("{what}: {error}");
    match code {
        Some(
            Code::TopicAuthorizationFailed
            | Code::GroupAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::Authentication
            | Code::SaslAuthenticationFailed
            | Code::MessageSizeTooLarge
            | Code::MessageBatchTooLarge
            | Code::InvalidMessageSize
            | Code::InvalidRecord
            | Code::InvalidTopic
            | Code::PolicyViolation
            | Code::UnknownTopic
            | Code::UnknownTopicOrPartition
            | Code::UnknownPartition
            | Code::InvalidPartitions
            | Code::InvalidReplicationFactor
            | Code::UnsupportedVersion,
        ) => BusError::Refused(text),
        _ => BusError::Away(text),
    }
}

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::MS_MAX;
use crate::config::reader::Reader;

#[derive(Clone)]
pub struct RabbitMqSettings {
    /// May hold a password. The RabbitMQ client checks it.
    pub url: String,
    /// The file of certificates that are trusted beside the system's.
    pub tls_roots: Option<PathBuf>,
    pub exchange: String,
    /// Records that a sender holds of each lane before it has begun them.
    pub prefetch: u16,
    pub connect_timeout: Duration,
    pub publish_timeout: Duration,
}

const EXCHANGE_BYTES_MAX: usize = 200;

impl RabbitMqSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let url = reader.text("rabbitmq.url");
        let roots = reader.text("rabbitmq.tls_roots");
        if !roots.is_empty() && !url.starts_with("amqps://") {
            let fix = "write amqps:// in rabbitmq.url, or leave this empty";
            reader.problem_with_fix("rabbitmq.tls_roots", "is for a rabbitmq.url over TLS", fix);
        }
        let exchange = reader.text("rabbitmq.exchange");
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !(1..=EXCHANGE_BYTES_MAX).contains(&exchange.len())
            || !exchange.bytes().all(fits)
            || exchange.starts_with("amq.")
        {
            let what =
                format!("{exchange:?} must be letters, digits, '.', '_' or '-', and not begin with \"amq.\"");
            reader.problem_with_fix("rabbitmq.exchange", what, "such as \"tidegate\"");
        }
        let prefetch = reader.number("rabbitmq.prefetch", 1..=65_535);
        Self {
            url: url.to_owned(),
            tls_roots: (!roots.is_empty()).then(|| PathBuf::from(roots)),
            exchange: exchange.to_owned(),
            prefetch: u16::try_from(prefetch).unwrap_or(u16::MAX),
            connect_timeout: reader.millis("rabbitmq.connect_timeout_ms", 1..=MS_MAX),
            publish_timeout: reader.millis("rabbitmq.publish_timeout_ms", 100..=MS_MAX),
        }
    }
}

impl fmt::Debug for RabbitMqSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMqSettings").field("exchange", &self.exchange).finish_non_exhaustive()
    }
}

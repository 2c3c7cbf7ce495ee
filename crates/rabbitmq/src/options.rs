use std::fmt;
use std::time::Duration;

use tidegate_bus::Routes;

use crate::endpoint::Endpoint;

/// How to reach a RabbitMQ, and what to call things there.
#[derive(Clone)]
pub struct Options {
    /// `amqp://user:password@host:port/vhost`, or `amqps://…` over TLS. A `heartbeat` in its query is respected.
    pub url: String,
    /// Certificates in PEM that are trusted beside the system's. For `amqps` only.
    pub roots_pem: Option<String>,
    /// The exchange. Beside it stands `<exchange>.dead`.
    pub exchange: String,
    /// Which queues travel. Each lane has a queue of its own, and `<name>.dead` takes what can't be read.
    pub routes: Routes,
    /// Records of one lane that a consumer holds at most, given out or not: no more come until some are done.
    pub prefetch: u16,
    pub connect_timeout: Duration,
    /// From the call of `publish` to its answer.
    pub publish_timeout: Duration,
    /// Larger records travel without their text.
    pub record_bytes_max: usize,
}

impl Options {
    pub fn new(url: impl Into<String>, routes: Routes) -> Self {
        Self {
            url: url.into(),
            roots_pem: None,
            exchange: "tidegate".to_owned(),
            routes,
            prefetch: 500,
            connect_timeout: Duration::from_secs(5),
            publish_timeout: Duration::from_secs(5),
            record_bytes_max: 900_000,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = Endpoint::parse(&self.url).map(|endpoint| endpoint.to_string());
        f.debug_struct("Options")
            .field("url", &at.as_deref().unwrap_or("not a URL"))
            .field("exchange", &self.exchange)
            .field("routes", &self.routes)
            .field("prefetch", &self.prefetch)
            .field("connect_timeout", &self.connect_timeout)
            .field("publish_timeout", &self.publish_timeout)
            .field("record_bytes_max", &self.record_bytes_max)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for url in ["amqp://me:open-sesame@example.com/x", "amqp//me:open-sesame@example.com", "open-sesame"]
        {
            let shown = format!("{:?}", Options::new(url, Routes::default()));
            assert!(!shown.contains("sesame"), "{shown}");
        }
    }
}

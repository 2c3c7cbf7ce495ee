use std::fmt;
use std::time::Duration;

use ipnet::IpNet;

/// How a webhook channel delivers. Everything is checked by [`WebhookChannel::new`](super::WebhookChannel::new),
/// before anything connects.
#[derive(Clone)]
pub struct WebhookOptions {
    /// `http://` or `https://`, without user and password.
    pub url: String,
    /// `whsec_…`, each of which signs; none: nothing is signed.
    pub secrets: Vec<String>,
    /// With every request. They win over a message's headers of the same name.
    pub headers: Vec<(String, String)>,
    /// For looking up, dialling and the TLS handshake together.
    pub connect_timeout: Duration,
    /// For the whole attempt.
    pub total_timeout: Duration,
    /// What is read of an answer. A failure keeps that much of it as its reason.
    pub response_bytes_max: usize,
    /// Statuses after which no further attempt is made.
    pub permanent_statuses: Vec<u16>,
    /// Connections kept for the next attempts.
    pub idle_connections_max: usize,
    /// All connections, those that are being made included. At least as many as there are attempts at the same time.
    pub connections_max: usize,
    /// Networks that may be dialled beside the public internet.
    pub allow: Vec<IpNet>,
    /// Ports that may be dialled; empty: any.
    pub ports: Vec<u16>,
    /// Certificates in PEM that are trusted instead of the system's.
    pub ca_pem: Option<Vec<u8>>,
}

pub const PERMANENT_STATUSES: [u16; 10] = [400, 401, 403, 404, 405, 410, 413, 414, 415, 422];

impl WebhookOptions {
    /// The defaults.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            secrets: Vec::new(),
            headers: Vec::new(),
            connect_timeout: Duration::from_secs(5),
            total_timeout: Duration::from_secs(15),
            response_bytes_max: 64 * 1024,
            permanent_statuses: PERMANENT_STATUSES.to_vec(),
            idle_connections_max: 64,
            connections_max: 4_096,
            allow: Vec::new(),
            ports: Vec::new(),
            ca_pem: None,
        }
    }
}

/// Neither the URL, which may be a secret, nor secrets, nor headers' values.
impl fmt::Debug for WebhookOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("WebhookOptions")
            .field("secrets", &self.secrets.len())
            .field("headers", &headers)
            .field("connect_timeout", &self.connect_timeout)
            .field("total_timeout", &self.total_timeout)
            .field("response_bytes_max", &self.response_bytes_max)
            .field("permanent_statuses", &self.permanent_statuses)
            .field("idle_connections_max", &self.idle_connections_max)
            .field("allow", &self.allow)
            .field("ports", &self.ports)
            .finish_non_exhaustive()
    }
}

/// What is wrong with the options, by option and without repeating a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    #[error("{0}")]
    Url(&'static str),
    #[error("{0} is not on the public internet, and no allowed network holds it")]
    Forbidden(std::net::IpAddr),
    #[error("port {0} is not one of the allowed ports")]
    Port(u16),
    #[error("{0}")]
    Secret(&'static str),
    #[error("{0}")]
    Header(String),
    #[error("{0} is not a failure; 300 to 599 are")]
    Status(u16),
    #[error("{0} must be more than zero")]
    Zero(&'static str),
    /// Of the given certificates.
    #[error("{0}")]
    Tls(String),
    /// Of the system's.
    #[error("{0}")]
    System(String),
}

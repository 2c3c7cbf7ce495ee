use std::fmt;

use lapin::uri::AMQPUri;

use crate::error::OpenError;

/// Seconds. A broker that says nothing for twice as long is away.
const HEARTBEAT_S: u16 = 2;

/// Where RabbitMQ is, and how to log in there. Shown without the password, always.
#[derive(Clone)]
pub struct Endpoint(AMQPUri);

impl Endpoint {
    pub fn parse(url: &str) -> Result<Self, OpenError> {
        // Its error may repeat the URL, which holds a password.
        let mut uri: AMQPUri = url.parse().map_err(|_| OpenError::BadUrl)?;
        if uri.vhost.is_empty() {
            "/".clone_into(&mut uri.vhost);
        }
        uri.query.heartbeat = Some(uri.query.heartbeat.filter(|seconds| *seconds > 0).unwrap_or(HEARTBEAT_S));
        Ok(Self(uri))
    }

    pub fn uri(&self) -> AMQPUri {
        self.0.clone()
    }

    pub fn user(&self) -> &str {
        &self.0.authority.userinfo.username
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AMQPUri { scheme, authority, vhost, .. } = &self.0;
        write!(f, "{scheme}://{}:{}", authority.host, authority.port)?;
        if vhost == "/" { Ok(()) } else { write!(f, "/{vhost}") }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        let endpoint = Endpoint::parse("amqps://me:open-sesame@example.com:5671/sms").unwrap();
        assert_eq!(format!("{endpoint} {endpoint:?}").matches("sesame").count(), 0);
        assert_eq!((endpoint.to_string().as_str(), endpoint.user()), ("amqps://example.com:5671/sms", "me"));
    }

    #[test]
    fn the_vhost_is_the_default_one_unless_it_is_named() {
        for url in ["amqp://host", "amqp://host/", "amqp://host/%2f", "amqp://host:5672/%2F"] {
            assert_eq!(Endpoint::parse(url).unwrap().uri().vhost, "/", "{url}");
        }
    }

    #[test]
    fn what_is_no_url_is_refused_without_being_repeated() {
        for url in ["", "localhost:5672", "http://:open-sesame@host/", "amqp://:open-sesame@host:port/"] {
            let refused = Endpoint::parse(url).unwrap_err();
            assert!(!format!("{refused} {refused:?}").contains("sesame"));
        }
    }

    #[test]
    fn silence_is_noticed_soon_unless_the_url_says_otherwise() {
        let heartbeat = |url| Endpoint::parse(url).unwrap().uri().query.heartbeat;
        assert_eq!(heartbeat("amqp://host"), Some(HEARTBEAT_S));
        assert_eq!(heartbeat("amqp://host/?heartbeat=30"), Some(30));
        assert_eq!(heartbeat("amqp://host/?heartbeat=0"), Some(HEARTBEAT_S));
    }
}

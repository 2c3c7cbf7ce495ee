use std::fmt;

use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, TlsCertificates};

/// Where Redis is, and how to log in there. Shown without the credentials, always.
#[derive(Clone)]
pub struct Endpoint(ConnectionInfo);

/// Says nothing of the URL, which may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    #[error("is not the URL of a Redis")]
    NoRedis,
    #[error("names a database that no Redis has: they are numbered from 0")]
    NoDatabase,
}

/// Redis counts its databases in an `int`. How many there are is the server's setting.
const DATABASES: std::ops::Range<i64> = 0..i32::MAX as i64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRoots {
    #[error("holds no certificates in PEM")]
    NoCertificates,
    #[error("is for a URL with rediss:// only")]
    NoTls,
}

impl Endpoint {
    /// `redis://[user:password@]host[:port][/db]`, `rediss://…` over TLS, or `redis+unix:///path`.
    pub fn parse(url: &str) -> Result<Self, BadUrl> {
        let info = url.into_connection_info().map_err(|_| BadUrl::NoRedis)?;
        if !info.addr().is_supported() {
            return Err(BadUrl::NoRedis);
        }
        let has_database = DATABASES.contains(&info.redis_settings().db());
        if has_database { Ok(Self(info)) } else { Err(BadUrl::NoDatabase) }
    }

    /// Whether these are certificates in PEM.
    pub fn check_roots(roots_pem: &[u8]) -> Result<(), BadRoots> {
        let anywhere = Self::parse("rediss://localhost/").map_err(|_| BadRoots::NoTls)?;
        anywhere.trusting(roots_pem).map(drop)
    }

    /// With these certificates in PEM trusted, and not the system's.
    pub fn trusting(self, roots_pem: &[u8]) -> Result<Self, BadRoots> {
        if !matches!(self.0.addr(), ConnectionAddr::TcpTls { .. }) {
            return Err(BadRoots::NoTls);
        }
        let begin = b"-----BEGIN CERTIFICATE-----";
        if !roots_pem.windows(begin.len()).any(|part| part == begin) {
            return Err(BadRoots::NoCertificates);
        }
        let certificates = TlsCertificates { client_tls: None, root_cert: Some(roots_pem.to_vec()) };
        let client = Client::build_with_tls(self.0, certificates).map_err(|_| BadRoots::NoCertificates)?;
        Ok(Self(client.get_connection_info().clone()))
    }

    pub(crate) fn info(&self) -> ConnectionInfo {
        self.0.clone()
    }

    /// The same login at another node.
    pub(crate) fn at(&self, node: (&str, u16)) -> ConnectionInfo {
        let (host, port) = (node.0.to_owned(), node.1);
        let address = match self.0.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        self.0.clone().set_addr(address)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0.addr(), self.0.redis_settings().db())
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
        let endpoint = Endpoint::parse("rediss://user:open-sesame@example.com:6380/3").unwrap();
        assert_eq!(endpoint.to_string(), "example.com:6380/3");
        assert!(!format!("{endpoint:?}").contains("sesame"));
        let moved = endpoint.at(("10.0.0.9", 7_000));
        assert_eq!((moved.addr().to_string().as_str(), moved.redis_settings().db()), ("10.0.0.9:7000", 3));
    }

    #[test]
    fn roots_are_certificates_and_for_tls() {
        let endpoint = |url| Endpoint::parse(url).unwrap();
        let half = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for wrong in [b"".as_slice(), b"no such thing", half] {
            assert_eq!(endpoint("rediss://host/").trusting(wrong).unwrap_err(), BadRoots::NoCertificates);
        }
        assert_eq!(endpoint("redis://host/").trusting(half).unwrap_err(), BadRoots::NoTls);
    }

    #[test]
    fn databases_are_numbered_from_zero() {
        for database in ["-1", "99999999999"] {
            let url = format!("redis://:open-sesame@localhost/{database}");
            assert_eq!(Endpoint::parse(&url).unwrap_err(), BadUrl::NoDatabase);
        }
        assert!(Endpoint::parse("redis://localhost/15").is_ok());
    }

    #[test]
    fn what_is_no_url_is_refused_without_being_repeated() {
        for url in ["", "localhost:6379", "http://:open-sesame@localhost/", "redis://:open-sesame@host:port/"]
        {
            let refused = Endpoint::parse(url).unwrap_err();
            assert!(!format!("{refused} {refused:?}").contains("sesame"));
        }
    }
}

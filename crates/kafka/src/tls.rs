use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rdkafka::ClientConfig;
use rdkafka::consumer::BaseConsumer;

/// Whether this build can do TLS, and logins by SCRAM.
pub const TLS: bool = cfg!(feature = "tls");

const LINE: usize = 64;

/// Connections are encrypted, and the certificate and the name of every broker are checked.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Certificates in PEM that brokers' ones are checked against; none: the system's.
    pub roots_pem: Option<String>,
    /// What this client shows to brokers that want to know who it is.
    pub identity: Option<Identity>,
}

#[derive(Clone)]
pub struct Identity {
    /// The client's own certificate first, then those between it and the authority.
    pub certificate_pem: String,
    /// Without a passphrase.
    pub key_pem: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    #[error("holds no certificates in PEM")]
    Roots,
    #[error("the system trusts no certificates")]
    NoSystemRoots,
    #[error("holds no certificate in PEM")]
    Certificate,
    #[error("holds no private key in PEM")]
    Key,
    #[error("holds a key with a passphrase, which can't be read")]
    LockedKey,
    #[error("holds the key of another certificate")]
    OtherKey,
}

impl Tls {
    /// Whether there is something to trust: these certificates, or the system's.
    pub fn check_roots(pem: Option<&str>) -> Result<(), TlsError> {
        let roots = Self { roots_pem: pem.map(str::to_owned), identity: None }.with_roots()?;
        let mut config = ClientConfig::new();
        roots.apply(&mut config);
        try_out(&config).map_err(|_| if pem.is_some() { TlsError::Roots } else { TlsError::NoSystemRoots })
    }

    /// With the system's certificates where there are no others: the same ones that every other client of the gateway
    /// trusts. OpenSSL would look for them in a place that was chosen when it was built.
    ///
    /// What is empty counts as not set to librdkafka, and it would then trust whom OpenSSL trusts: that is refused here.
    pub(crate) fn with_roots(mut self) -> Result<Self, TlsError> {
        match &self.roots_pem {
            Some(roots) if is_blank(roots) => return Err(TlsError::Roots),
            Some(_) => {}
            None => {
                let found = rustls_native_certs::load_native_certs().certs;
                if found.is_empty() {
                    return Err(TlsError::NoSystemRoots);
                }
                self.roots_pem = Some(found.iter().map(|der| pem(der)).collect());
            }
        }
        Ok(self)
    }

    pub(crate) fn apply(&self, config: &mut ClientConfig) {
        config.set("security.protocol", "ssl");
        config.set("enable.ssl.certificate.verification", "true");
        config.set("ssl.endpoint.identification.algorithm", "https");
        if let Some(roots) = &self.roots_pem {
            config.set("ssl.ca.pem", roots);
        }
        if let Some(identity) = &self.identity {
            config.set("ssl.certificate.pem", &identity.certificate_pem);
            config.set("ssl.key.pem", &identity.key_pem);
        }
    }
}

impl Identity {
    pub fn check(&self) -> Result<(), TlsError> {
        if self.key_pem.contains("BEGIN ENCRYPTED PRIVATE KEY")
            || self.key_pem.contains("Proc-Type: 4,ENCRYPTED")
        {
            return Err(TlsError::LockedKey);
        }
        // Not set, to librdkafka.
        if is_blank(&self.certificate_pem) {
            return Err(TlsError::Certificate);
        }
        if is_blank(&self.key_pem) {
            return Err(TlsError::Key);
        }
        let mut config = ClientConfig::new();
        Tls { roots_pem: None, identity: Some(self.clone()) }.apply(&mut config);
        try_out(&config).map_err(|said| match said {
            said if said.contains("ssl.certificate.pem") => TlsError::Certificate,
            said if said.contains("mismatch") => TlsError::OtherKey,
            _ => TlsError::Key,
        })
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}

/// The client itself is asked: it alone knows what its OpenSSL can read. It has no addresses, so it connects nowhere.
fn try_out(config: &ClientConfig) -> Result<(), String> {
    let client: Result<BaseConsumer<Silent>, _> = config.create_with_context(Silent);
    client.map(drop).map_err(|error| error.to_string())
}

/// What it would log is its answer, too.
struct Silent;

impl rdkafka::ClientContext for Silent {
    fn log(&self, _: rdkafka::config::RDKafkaLogLevel, _: &str, _: &str) {}
}

impl rdkafka::consumer::ConsumerContext for Silent {}

fn is_blank(pem: &str) -> bool {
    pem.trim().is_empty()
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for at in (0..text.len()).step_by(LINE) {
        pem.push_str(&text[at..text.len().min(at + LINE)]);
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_trusted_where_nothing_else_is_and_never_instead_of_nothing() {
        let found = rustls_native_certs::load_native_certs().certs.len();
        let roots = Tls::default().with_roots().map(|tls| tls.roots_pem.unwrap_or_default());
        match found {
            0 => assert_eq!(roots, Err(TlsError::NoSystemRoots)),
            _ => assert_eq!(roots.map(|pem| pem.matches("BEGIN CERTIFICATE").count()), Ok(found)),
        }
        assert_eq!(Tls::check_roots(None).is_ok(), found > 0, "OpenSSL reads what the system has");
        for nothing in ["", " \n", "no such thing"] {
            assert_eq!(Tls::check_roots(Some(nothing)), Err(TlsError::Roots), "{nothing:?}");
        }
        let empty = Tls { roots_pem: Some(String::new()), identity: None };
        assert!(matches!(empty.with_roots(), Err(TlsError::Roots)));
    }
}

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::WebhookError;
use super::target::Host;

/// What a handshake needs, made once per channel: who is trusted, and which name must be proven.
///
/// Trusted is whom the system trusts, so that operators keep one list, or the given certificates alone.
pub fn connector(
    host: &Host,
    ca_pem: Option<&[u8]>,
) -> Result<(TlsConnector, ServerName<'static>), WebhookError> {
    let failed = |error: &dyn std::fmt::Display| WebhookError::Tls(error.to_string());
    let roots = match ca_pem {
        Some(pem) => given(pem)?,
        None => system()?,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let name = match host {
        Host::Literal(ip) => ServerName::from(*ip),
        Host::Name(name) => ServerName::try_from(name.clone()).map_err(|error| failed(&error))?,
    };
    Ok((TlsConnector::from(Arc::new(config)), name))
}

fn given(pem: &[u8]) -> Result<RootCertStore, WebhookError> {
    let wrong = || WebhookError::Tls("ca_pem holds no certificate, or one that can't be read".to_owned());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate.map_err(|_| wrong())?).map_err(|_| wrong())?;
    }
    if roots.is_empty() { Err(wrong()) } else { Ok(roots) }
}

fn system() -> Result<RootCertStore, WebhookError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Stores carry a few oddities that nobody misses.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
        return Err(WebhookError::Tls(format!("the system trusts no certificates{why}")));
    }
    Ok(roots)
}

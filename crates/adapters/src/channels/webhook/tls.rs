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
    Ok((TlsConnector::from(Arc::new(config)), server_name(host)?))
}

/// What the server has to prove.
pub fn server_name(host: &Host) -> Result<ServerName<'static>, WebhookError> {
    match host {
        Host::Literal(ip) => Ok(ServerName::from(*ip)),
        Host::Name(name) => ServerName::try_from(name.clone())
            .map_err(|_| WebhookError::Url("its host can't be the name in a certificate")),
    }
}

pub fn given(pem: &[u8]) -> Result<RootCertStore, WebhookError> {
    let wrong = || WebhookError::Tls("holds no certificate in PEM, or one that can't be read".to_owned());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate.map_err(|_| wrong())?).map_err(|_| wrong())?;
    }
    if roots.is_empty() { Err(wrong()) } else { Ok(roots) }
}

pub fn system() -> Result<RootCertStore, WebhookError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Stores carry a few oddities that nobody misses.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
        return Err(WebhookError::System(format!("the system trusts no certificates{why}")));
    }
    Ok(roots)
}

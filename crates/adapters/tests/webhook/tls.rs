use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tidegate_adapters::channels::webhook::WebhookOptions;
use tidegate_domain::Delivery;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::sink::{channel, claim, deliver, later};

pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    pub pem: String,
}

pub fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let pem = issuer.pem();
    Authority { issuer, pem }
}

/// Answers 200 to everything, under the given name. Returns its port.
async fn listen(authority: &Authority, name: &str) -> u16 {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority.issuer).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut request = vec![0; 16 * 1024];
            while stream.read(&mut request).await.is_ok_and(|n| n > 0) {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
            }
        }
    });
    port
}

fn options(host: &str, port: u16, trusted: &Authority) -> WebhookOptions {
    WebhookOptions {
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        ca_pem: Some(trusted.pem.clone().into_bytes()),
        ..WebhookOptions::new(format!("https://{host}:{port}/geheim"))
    }
}

#[tokio::test]
async fn a_trusted_name_is_delivered_to() {
    let authority = authority();
    let port = listen(&authority, "localhost").await;
    let channel = channel(options("localhost", port, &authority));
    assert_eq!(deliver(&channel, &claim()).await, Delivery::Delivered);
    assert_eq!(deliver(&channel, &claim()).await, Delivery::Delivered);
}

#[tokio::test]
async fn an_address_can_be_a_certificates_name() {
    let authority = authority();
    let port = listen(&authority, "127.0.0.1").await;
    let channel = channel(options("127.0.0.1", port, &authority));
    assert_eq!(deliver(&channel, &claim()).await, Delivery::Delivered);
}

#[tokio::test]
async fn another_name_or_an_unknown_issuer_is_not() {
    let (ours, theirs) = (authority(), authority());
    let port = listen(&ours, "example.org").await;
    let reason = later(deliver(&channel(options("localhost", port, &ours)), &claim()).await);
    assert!(reason.starts_with("TLS: ") && !reason.contains("geheim"), "{reason}");
    let port = listen(&theirs, "localhost").await;
    let reason = later(deliver(&channel(options("localhost", port, &ours)), &claim()).await);
    assert!(reason.starts_with("TLS: "), "{reason}");
}

//! Over TLS.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tidegate_domain::{Bus as _, BusHealth, Lane};
use tidegate_rabbitmq::{Options, RabbitBus};
use tidegate_testkit::services::{RabbitMq, RabbitMqOptions};

use crate::backend::{RabbitBackend, claim};

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::<String>::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    CertifiedIssuer::self_signed(params, key).expect("a certificate")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_who_it_says_is_trusted_and_no_other() {
    let (authority, dir) = (authority(), tempfile::tempdir().unwrap());
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let (certificate_file, key_file) = (dir.path().join("server.pem"), dir.path().join("server.key"));
    fs::write(&certificate_file, certificate.pem()).unwrap();
    fs::write(&key_file, key.serialize_pem()).unwrap();
    let options = RabbitMqOptions { certificate: Some((certificate_file, key_file)) };
    let rabbitmq = RabbitMq::start_with(options).unwrap();
    let options = |host: &str, roots: &CertifiedIssuer<'static, KeyPair>| Options {
        url: format!("amqps://guest:guest@{host}:{}/%2f", rabbitmq.tls_address.port()),
        roots_pem: Some(roots.pem()),
        ..RabbitBackend::on(&rabbitmq).options
    };

    let bus = RabbitBus::open(options("localhost", &authority)).await.unwrap();
    assert_eq!(bus.publish(vec![claim(1, Lane::Normal)]).await, [Ok(())]);

    for wrong in [options("127.0.0.1", &authority), options("localhost", &self::authority())] {
        let bus = RabbitBus::open(wrong).await.unwrap();
        let BusHealth::Away(why) = bus.health() else { panic!("it was trusted") };
        assert!(why.contains("certificate"), "{why}");
    }
}

use std::path::Path;

use serde_json::json;
use tempfile::TempDir;
use tidegate_testkit::services::{Kafka, KafkaOptions};

use super::{configured, kafka_with, sends_up_to_its_quota, status, write};
use crate::authority::Authority;
use crate::gateway::{Gateway, eventually, start};

const PASSWORD: &str = "open-sesame";

fn server(authority: &Authority, options: KafkaOptions) -> Option<Kafka> {
    kafka_with(&KafkaOptions { certificate: Some(authority.certify("localhost")), ..options })
}

/// The settings of a bus at these brokers, over TLS.
fn over_tls(brokers: &str, roots: &Path, more: &str) -> String {
    let roots = roots.display();
    format!(
        "kind = \"kafka\"\n[kafka]\nbrokers = [\"{brokers}\"]\npublish_timeout_ms = 2000\n\
         tls = \"on\"\ntls_roots = \"{roots}\"\n{more}"
    )
}

/// A gateway for which Kafka is away, and the log says why. Its messages wait.
fn is_away(dir: &TempDir, why: &str) -> Gateway {
    let gateway = start(dir.path());
    // Senders may tell the same before the watch does.
    let told = |line: &String| line.contains(why) && line.contains("Kafka is away: ");
    let line = eventually(|| gateway.stderr.all().into_iter().find(told));
    eprintln!("{line}");
    assert_eq!(status(&gateway), "away");
    gateway.configure("ann", 5);
    let answer = gateway.send("ann", "hello");
    assert_eq!((answer.status, &answer.json()["degraded"]), (200, &json!(true)), "{answer:?}");
    gateway
}

fn is_refused(bus: &str, why: &str) {
    assert!(is_away(&configured(bus, "accept"), why).stop().success());
}

#[test]
fn a_kafka_that_is_who_it_says_is_trusted_and_no_other() {
    let authority = Authority::new();
    let Some(kafka) = server(&authority, KafkaOptions::default()) else { return };
    let roots = authority.roots();
    sends_up_to_its_quota(configured(&over_tls(&kafka.named(), &roots, ""), "accept").path());
    // The certificate is for a name, not for an address.
    is_refused(&over_tls(&kafka.bootstrap(), &roots, ""), "its certificate is not trusted");
    // What was let in while it was refused comes out when it is trusted.
    let stranger = Authority::new();
    let dir = configured(&over_tls(&kafka.named(), &stranger.roots(), ""), "accept");
    let gateway = is_away(&dir, "its certificate is not trusted");
    let id = gateway.send("ann", "later").json()["id"].as_str().unwrap().to_owned();
    assert!(gateway.stop().success());
    write(dir.path(), &over_tls(&kafka.named(), &roots, ""), "accept");
    let gateway = start(dir.path());
    gateway.delivered(&id);
    eventually(|| (status(&gateway) == "ready").then_some(()));
    assert!(gateway.stop().success());
    // A client that speaks to it in the clear is told, too.
    is_refused(&super::on_kafka(&kafka), "does this Kafka want another login, or TLS?");
}

#[test]
fn a_kafka_without_tls_is_refused() {
    let Some(kafka) = super::kafka() else { return };
    let authority = Authority::new();
    let bus = over_tls(&kafka.named(), &authority.roots(), "");
    is_refused(&bus, "it seems not to speak TLS");
}

#[test]
fn a_kafka_that_wants_a_certificate_is_shown_one() {
    let authority = Authority::new();
    let options = KafkaOptions { client_roots: Some(authority.roots()), ..KafkaOptions::default() };
    let Some(kafka) = server(&authority, options) else { return };
    let roots = authority.roots();
    let showing = |of: &Authority| {
        let (certificate, key) = of.certify("gateway");
        let (certificate, key) = (certificate.display(), key.display());
        format!("tls_certificate = \"{certificate}\"\ntls_key = \"{key}\"\n")
    };
    sends_up_to_its_quota(
        configured(&over_tls(&kafka.named(), &roots, &showing(&authority)), "accept").path(),
    );
    is_refused(&over_tls(&kafka.named(), &roots, ""), "it wants a certificate of this client");
    let stranger = Authority::new();
    let other = over_tls(&kafka.named(), &roots, &showing(&stranger));
    is_refused(&other, "it does not accept the certificate of this client");
}

#[test]
fn logins_by_scram_go_over_tls() {
    let authority = Authority::new();
    let users = vec![("alice".to_owned(), PASSWORD.to_owned())];
    let Some(kafka) = server(&authority, KafkaOptions { users, scram: true, ..KafkaOptions::default() })
    else {
        return;
    };
    let login = |mechanism: &str, password: &str| {
        let more = format!("user = \"alice\"\npassword = \"{password}\"\nsasl_mechanism = \"{mechanism}\"\n");
        over_tls(&kafka.named(), &authority.roots(), &more)
    };
    sends_up_to_its_quota(configured(&login("SCRAM-SHA-512", PASSWORD), "accept").path());
    let gateway = is_away(
        &configured(&login("SCRAM-SHA-512", "open-barley"), "accept"),
        "the login of \\\"alice\\\" is refused",
    );
    assert!(!gateway.stderr.all().join("\n").contains("barley"));
    assert!(gateway.stop().success());
    is_refused(&login("PLAIN", PASSWORD), "the login of \\\"alice\\\" is refused");
}

use super::check;
use crate::config::{Loaded, Sources};

/// All problems of a file, the adapters' among them.
fn problems(text: &str) -> Vec<String> {
    let sources = Sources { file: Some(("tidegate.toml".into(), text.to_owned())), ..Sources::default() };
    match Loaded::checked(&sources, check) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.0.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn the_defaults_are_fine() {
    assert_eq!(problems(""), [""; 0]);
}

#[test]
fn urls_that_no_start_could_use_are_told_without_their_password() {
    for (section, url, part) in [
        ("postgres", "postgres://app:sesame@db:port/t", "`port` makes no sense"),
        ("postgres", "postgres://app:sesame@[::1/t", "`host` makes no sense"),
        ("postgres", "postgres://app:x@db/t?sesame=1", "not of the form postgres://"),
        ("postgres", "postgres:///t", "names no host"),
        ("postgres", "mysql://:sesame@db", "not of the form postgres://"),
        ("redis", "redis://:sesame@host:port/", "is not the URL of a Redis"),
        ("redis", "http://:sesame@db", "is not the URL of a Redis"),
        ("redis", "redis://:sesame@db/-1", "names a database that no Redis has"),
        ("redis", "redis://:sesame@db/99999999999", "names a database that no Redis has"),
        ("rabbitmq", "amqp://app:sesame@host:port/%2f", "the URL is not of the form amqp://"),
        ("rabbitmq", "http://:sesame@x", "the URL is not of the form amqp://"),
        ("webhook", "ftp://sesame", "must begin with http:// or https://"),
        ("webhook", "https://me:sesame@example.com/", "holds a user or password"),
    ] {
        let found = problems(&format!("[{section}]\nurl = \"{url}\"\n"));
        let place = format!("tidegate.toml:2: {section}.url: ");
        assert!(
            matches!(&found[..], [one] if one.starts_with(&place) && one.contains(part) && one.contains("; such as")),
            "{url}: {found:#?}"
        );
        assert!(!found[0].contains("sesame"), "{found:?}");
    }
}

#[test]
fn places_that_no_ledger_can_be_kept_in_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().display().to_string();
    std::fs::write(dir.path().join("file"), "").unwrap();
    std::os::unix::fs::symlink("nowhere", dir.path().join("link")).unwrap();
    let long = "x".repeat(300);
    for (path, part) in [
        ("a\\u0000b".to_owned(), "holds a NUL"),
        (format!("{here}/{long}"), "holds a name of 300 bytes"),
        (format!("{here}/{long}/below"), "holds a name of 300 bytes"),
        (format!("{here}/file/below"), "/file is not a directory"),
        (format!("{here}/link"), "/link is not a directory"),
        ("/proc/tidegate/data".to_owned(), "/proc"),
        ("/sys/tidegate".to_owned(), "/sys"),
    ] {
        let found = problems(&format!("[ledger]\npath = \"{path}\"\n"));
        let told = matches!(&found[..], [one] if one.starts_with("tidegate.toml:2: ledger.path: ") && one.contains(part));
        assert!(told && found[0].contains("; choose a directory"), "{path}: {found:#?}");
    }
    let name = "x".repeat(255);
    assert_eq!(problems(&format!("[ledger]\npath = \"{here}/{name}/new\"\n")), [""; 0]);
}

#[test]
fn a_principal_that_is_there_twice_is_told_once() {
    let one = |name: &str, digit: &str| {
        format!(
            "[[principals]]\nname = \"{name}\"\nrole = \"USER\"\napi_key_hashes = [\"{}\"]\n",
            digit.repeat(64)
        )
    };
    for (text, key) in [
        (one("a", "1") + &one("a", "2"), "principals.name"),
        (one("a", "1") + &one("b", "1"), "principals.api_key_hashes"),
    ] {
        let found = problems(&text);
        assert!(matches!(&found[..], [one] if one.contains(key) && one.contains("twice")), "{found:#?}");
    }
}

#[test]
fn files_that_hold_no_certificates_are_told_whether_they_are_used_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ca.pem");
    let file = path.display();
    let kafka = tidegate_kafka::TLS
        .then(|| (format!("[kafka]\ntls = \"on\"\ntls_roots = \"{file}\"\n"), "kafka.tls_roots"));
    for (text, key) in [
        (format!("[postgres]\ntls = \"on\"\ntls_roots = \"{file}\"\n"), "postgres.tls_roots"),
        (format!("[redis]\nurl = \"rediss://h/\"\ntls_roots = \"{file}\"\n"), "redis.tls_roots"),
        (format!("[rabbitmq]\nurl = \"amqps://h/\"\ntls_roots = \"{file}\"\n"), "rabbitmq.tls_roots"),
        (format!("[webhook]\n\nca_file = \"{file}\"\n"), "webhook.ca_file"),
    ]
    .into_iter()
    .chain(kafka)
    {
        let place = format!("tidegate.toml:3: {key}: ");
        let told = || matches!(&problems(&text)[..], [one] if one.starts_with(&place) && one.contains("; name a file"));
        let _ = std::fs::remove_file(&path);
        assert!(told(), "missing: {:#?}", problems(&text));
        for wrong in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
        {
            std::fs::write(&path, wrong).unwrap();
            assert!(told(), "{wrong}: {:#?}", problems(&text));
        }
    }
}

#[test]
fn a_place_that_can_not_be_used_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    for path in [file.clone(), file.join("deeper/data")] {
        let found = problems(&format!("[ledger]\npath = \"{}\"\n", path.display()));
        assert!(
            matches!(&found[..], [one] if one.starts_with("tidegate.toml:2: ledger.path: ") && one.contains("is not a directory")),
            "{found:#?}"
        );
    }
    assert_eq!(problems(&format!("[ledger]\npath = \"{}/new/data\"\n", dir.path().display())), [""; 0]);
    // Set aside for documentation: no machine has it.
    let key = "a".repeat(64);
    let found = problems(&format!(
        "[server]\nlisten = \"192.0.2.1:8080\"\n[[principals]]\nname = \"x\"\nrole = \"ADMIN\"\napi_key_hashes = [\"{key}\"]\n"
    ));
    assert!(
        matches!(&found[..], [one] if one.starts_with("tidegate.toml:2: server.listen: cannot listen on 192.0.2.1:8080")),
        "{found:#?}"
    );
}

/// A certificate and its key, of no authority's.
fn identity() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["gateway".to_owned()]).unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

#[test]
fn what_kafka_can_not_be_shown_is_told() {
    if !tidegate_kafka::TLS {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = identity();
    let place = |name: &str| dir.path().join(name).display().to_string();
    let text = format!(
        "[kafka]\ntls = \"on\"\ntls_certificate = \"{}\"\ntls_key = \"{}\"\n",
        place("me.crt"),
        place("me.key")
    );
    let mut found = problems(&text);
    found.sort();
    assert!(
        matches!(&found[..], [one, other] if one.starts_with("tidegate.toml:3: kafka.tls_certificate: ")
            && other.starts_with("tidegate.toml:4: kafka.tls_key: ") && other.contains("No such file")),
        "{found:#?}"
    );
    let locked = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let cut = &certificate[..certificate.len() / 2];
    for (certificate, key, wrong) in [
        (
            "",
            key.as_str(),
            "tidegate.toml:3: kafka.tls_certificate: PLACE/me.crt: holds no certificate in PEM; name",
        ),
        (
            cut,
            &key,
            "tidegate.toml:3: kafka.tls_certificate: PLACE/me.crt: holds no certificate in PEM; name",
        ),
        (&certificate, "", "tidegate.toml:4: kafka.tls_key: PLACE/me.key: holds no private key in PEM; name"),
        (
            &certificate,
            &certificate,
            "tidegate.toml:4: kafka.tls_key: PLACE/me.key: holds no private key in PEM; name",
        ),
        (
            &certificate,
            &locked,
            "tidegate.toml:4: kafka.tls_key: PLACE/me.key: holds a key with a passphrase, which",
        ),
        (
            &certificate,
            &identity().1,
            "tidegate.toml:4: kafka.tls_key: PLACE/me.key: holds the key of another certificate",
        ),
    ] {
        std::fs::write(dir.path().join("me.crt"), certificate).unwrap();
        std::fs::write(dir.path().join("me.key"), key).unwrap();
        let wrong = wrong.replace("PLACE", &dir.path().display().to_string());
        let found = problems(&text);
        assert!(matches!(&found[..], [one] if one.starts_with(&wrong)), "{wrong}: {found:#?}");
    }
    std::fs::write(dir.path().join("me.crt"), &certificate).unwrap();
    std::fs::write(dir.path().join("me.key"), &key).unwrap();
    assert_eq!(problems(&text), [""; 0]);
}

#[test]
fn a_build_without_openssl_says_what_it_lacks() {
    let found = problems("[kafka]\ntls = \"on\"\nuser = \"app\"\nsasl_mechanism = \"SCRAM-SHA-256\"\n");
    if tidegate_kafka::TLS {
        return assert_eq!(found, [""; 0]);
    }
    let fix = "take a build with the feature kafka-tls, which is there by default";
    let lacks = |line: &str, what: &str| format!("tidegate.toml:{line}: this build has no {what}; {fix}");
    assert_eq!(found, [lacks("2: kafka.tls", "TLS to Kafka"), lacks("4: kafka.sasl_mechanism", "SCRAM")]);
}

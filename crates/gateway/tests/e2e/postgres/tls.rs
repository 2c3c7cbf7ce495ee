use std::path::Path;
use std::process::Output;

use tempfile::{TempDir, tempdir};
use tidegate_testkit::services::{Postgres, PostgresOptions};

use crate::authority::{Authority, give_to};
use crate::gateway::{command, start};

fn server(authority: &Authority, name: &str) -> Postgres {
    let (certificate, key) = authority.certify(name);
    give_to("postgres", &key);
    let file = |path: &Path| path.display().to_string();
    let settings =
        [("ssl", "on".to_owned()), ("ssl_cert_file", file(&certificate)), ("ssl_key_file", file(&key))];
    let settings = settings.map(|(name, value)| (name.to_owned(), value)).to_vec();
    Postgres::start(PostgresOptions { durable: true, settings }).unwrap()
}

fn configured(server: &Postgres, roots: &Path) -> TempDir {
    let (dir, port, roots) = (tempdir().unwrap(), server.address.port(), roots.display());
    let text = format!(
        "[ledger]\nkind = \"postgres\"\n[postgres]\nurl = \"postgres://postgres@localhost:{port}/postgres\"\n\
         tls = \"on\"\ntls_roots = \"{roots}\"\nconnections_max = 6\n"
    );
    std::fs::write(dir.path().join("tidegate.toml"), text).unwrap();
    dir
}

fn served(dir: &TempDir) -> Output {
    command(dir.path()).args(["serve", "--listen", "127.0.0.1:0"]).output().unwrap()
}

#[test]
fn a_server_that_is_who_it_says_is_trusted_and_nothing_goes_unencrypted() {
    let authority = Authority::new();
    let server = server(&authority, "localhost");
    let dir = configured(&server, &authority.roots());
    let gateway = start(dir.path());
    gateway.configure("ann", 5);
    let sent = gateway.send("ann", "hello");
    assert_eq!(sent.status, 200, "{sent:?}");
    // The one for wake-ups, too.
    gateway.delivered(sent.json()["id"].as_str().unwrap());
    let sessions = "SELECT count(*) > 1, bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                    WHERE application_name = 'tidegate'";
    assert_eq!(server.sql("postgres", sessions).unwrap().trim(), "t|t");
}

#[test]
fn a_server_under_another_name_or_from_another_authority_is_refused() {
    let authority = Authority::new();
    let misnamed = server(&authority, "elsewhere.test");
    let well_named = server(&authority, "localhost");
    let stranger = Authority::new();
    for (server, roots, why) in [
        (&misnamed, authority.roots(), "not valid for name"),
        (&well_named, stranger.roots(), "invalid peer certificate: BadSignature"),
    ] {
        let refused = served(&configured(server, &roots));
        let words = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && words.contains(why), "{words}");
        let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'tidegate'";
        assert_eq!(server.sql("postgres", schemas).unwrap().trim(), "0", "something was said to it");
    }
}

#[test]
fn a_server_without_tls_is_refused() {
    let server = Postgres::start(PostgresOptions { durable: true, settings: Vec::new() }).unwrap();
    let refused = served(&configured(&server, &Authority::new().roots()));
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && words.contains("TLS"), "{words}");
}

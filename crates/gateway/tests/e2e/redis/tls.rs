use std::path::Path;

use tempfile::{TempDir, tempdir};
use tidegate_testkit::services::{Redis, RedisOptions};

use super::{check_config, deadlines, gateway_with, outcome};
use crate::authority::Authority;
use crate::gateway::Gateway;
use crate::policies::{configure, policy};

fn server(authority: &Authority, name: &str) -> Redis {
    let certificate = Some(authority.certify(name));
    Redis::start_with(RedisOptions { certificate, ..RedisOptions::default() }).unwrap()
}

fn config(server: &Redis, roots: &Path) -> String {
    let (port, roots) = (server.tls_address.port(), roots.display());
    format!(
        "[limits]\nstore = \"redis\"\n[redis]\nurl = \"rediss://localhost:{port}/\"\n\
         tls_roots = \"{roots}\"\n{}",
        deadlines(5000)
    ) + &policy("closes", "/closed", 1, "failStrategy = \"FAIL_CLOSED\"")
}

fn gateway(server: &Redis, roots: &Path) -> (TempDir, Gateway) {
    gateway_with(&config(server, roots))
}

/// Away, as far as the gateway is concerned, and the log says why.
fn is_refused(gateway: &Gateway, why: &str) {
    let line = gateway.stderr.wait_for("Redis is away");
    assert!(line.contains(why), "{line}");
    assert_eq!(outcome(gateway, "/closed"), (429, true));
}

#[test]
fn a_server_that_is_who_it_says_is_trusted() {
    let authority = Authority::new();
    let server = server(&authority, "localhost");
    let (_dir, gateway) = gateway(&server, &authority.roots());
    assert_eq!((outcome(&gateway, "/closed"), outcome(&gateway, "/closed")), ((404, false), (429, false)));
    assert!(server.ask(&["DBSIZE"]).unwrap() != ":0\r\n", "it was another server");
}

#[test]
fn a_server_under_another_name_or_from_another_authority_is_refused() {
    let authority = Authority::new();
    let misnamed = server(&authority, "elsewhere.test");
    let (_dir, one) = gateway(&misnamed, &authority.roots());
    is_refused(&one, "certificate not valid for name");
    let well_named = server(&authority, "localhost");
    let (_dir, other) = gateway(&well_named, &Authority::new().roots());
    is_refused(&other, "invalid peer certificate: BadSignature");
    for server in [&misnamed, &well_named] {
        assert_eq!(server.ask(&["DBSIZE"]).unwrap(), ":0\r\n", "something was said to it");
    }
}

#[test]
fn check_config_reads_the_roots() {
    let authority = Authority::new();
    let (dir, server) = (tempdir().unwrap(), server(&authority, "localhost"));
    for (roots, wrong) in
        [("no-such-file", "No such file"), ("tidegate.toml", "holds no certificates in PEM")]
    {
        configure(dir.path(), &config(&server, Path::new(roots)));
        let said = check_config(dir.path());
        assert!(said.contains(&format!("redis.tls_roots: {roots}")) && said.contains(wrong), "{said}");
    }
}

//! The same tests on another ledger: `TIDEGATE_TEST_LEDGER=postgres cargo test -p tidegate --test e2e`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};

use tidegate_testkit::services::{Postgres, PostgresOptions};

const CHOICE: &str = "TIDEGATE_TEST_LEDGER";

/// As users run it: a server that does not sync is named in every answer.
static SERVER: LazyLock<Postgres> = LazyLock::new(|| {
    let settings = vec![("max_connections".to_owned(), "400".to_owned())];
    Postgres::start(PostgresOptions { durable: true, settings }).unwrap()
});

/// One database for each directory: a gateway that is started there again finds what it left.
static DATABASES: LazyLock<Mutex<HashMap<PathBuf, String>>> = LazyLock::new(Mutex::default);

pub fn is_embedded() -> bool {
    std::env::var(CHOICE).is_err()
}

/// What a gateway in this directory needs to be told about its ledger.
pub fn variables(dir: &Path) -> Vec<(&'static str, String)> {
    if is_embedded() {
        return Vec::new();
    }
    let mut databases = DATABASES.lock().unwrap();
    let database = databases.entry(dir.to_owned()).or_insert_with(|| {
        let name = SERVER.new_name();
        SERVER.sql("postgres", &format!("CREATE DATABASE {name}")).unwrap();
        name
    });
    vec![
        ("TIDEGATE_LEDGER__KIND", "postgres".to_owned()),
        ("TIDEGATE_POSTGRES__URL", SERVER.url(database)),
        ("TIDEGATE_POSTGRES__CONNECTIONS_MAX", "6".to_owned()),
    ]
}

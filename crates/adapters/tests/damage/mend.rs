//! Rows that do not match their checksums: the refusal names them, and their loss can be accepted.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use tidegate_adapters::embedded::{Embedded, OpenError, Options, accept_loss};
use tidegate_domain::{Clock, Durability, Ledger};
use tidegate_testkit::TestClock;

use crate::image::{DATABASE, Image, PROGRESS};
use crate::rows::{image, places, runtime};

fn options(dir: &Path) -> Options {
    Options { sync: Durability::Fsync, body_cache_bytes: 0, readers: 1, ..Options::new(dir) }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(TestClock::default())
}

fn open(dir: &Path) -> Result<Embedded, OpenError> {
    Embedded::open(options(dir), clock())
}

/// The ledger after one statement that no program of ours made.
fn changed(image: &Image, sql: &str) -> Image {
    let dir = image.restored();
    let db = Connection::open(dir.path().join(DATABASE)).unwrap();
    assert_eq!(db.execute(sql, []).unwrap(), 1, "{sql}");
    db.close().unwrap();
    Image::of(dir.path())
}

fn names(dir: &Path) -> Vec<String> {
    Image::of(dir)
        .names()
        .into_iter()
        .filter(|name| !name.ends_with("-shm") && !name.ends_with("-wal"))
        .collect()
}

#[test]
fn a_damaged_row_is_named_and_the_ledger_starts_without_it() {
    let image = image();
    // A pending message, with a key; an attempt of one that waits again.
    let cases = [
        ("key", "UPDATE key SET checksum = checksum + 1 WHERE seq = 2", "row 2 of table key"),
        ("quota", "UPDATE quota SET max = max + 1", "row ann of table quota"),
        ("slot", "UPDATE slot SET window = window + 1 WHERE seq = 1", "row 1 of table slot"),
        ("queue", "UPDATE queue SET paused = 1 - paused WHERE id = 0", "row 0 of table queue"),
        (
            "slot_config",
            "UPDATE slot_config SET max = max + 1 WHERE version = 2",
            "row 0, 2 of table slot_config",
        ),
        ("outcome", "UPDATE outcome SET attempt = attempt + 1 WHERE status = 2", "of table outcome"),
        ("queue_block", "UPDATE queue_block SET checksum = 7 WHERE queue = 1", "of table queue_block"),
        ("message", "UPDATE message SET recipient = 'bob' WHERE seq = 2", "row 2 of table message"),
        ("message", "UPDATE message SET lane = 9 WHERE seq = 2", "row 2 of table message"),
    ];
    for (table, sql, named) in cases {
        let dir = changed(&image, sql).restored();
        let refused = open(dir.path()).map(drop).expect_err(sql).to_string();
        assert!(refused.contains(named) && !refused.contains("Conversion"), "{sql}: {refused}");
        let loss = accept_loss(&options(dir.path()), &clock());
        let loss = loss.unwrap_or_else(|error| panic!("{sql}: {error}")).expect(sql);
        assert!(loss.to_string().contains(&format!("of table {table}")), "{sql}: {loss}");
        let losses = fs::read_to_string(dir.path().join("ledger.db-losses")).unwrap();
        assert!(
            losses.contains(&format!("of table {table}")) && losses.contains("it held"),
            "{sql}: {losses}"
        );
        let ledger = open(dir.path()).unwrap_or_else(|error| panic!("{sql}, after the acceptance: {error}"));
        let counts = runtime().block_on(ledger.counts()).unwrap();
        assert!(counts.balanced(), "{sql}: {counts:?}");
        drop(ledger);
        assert_eq!(accept_loss(&options(dir.path()), &clock()).unwrap(), None, "{sql}");
    }
}

#[test]
fn what_cannot_be_left_out_is_refused_and_nothing_changes() {
    let image = image();
    let cases = [
        "UPDATE totals SET checksum = checksum + 1",
        "UPDATE meta SET checksum = checksum + 1 WHERE name = 'salt'",
        "UPDATE slot_config SET name = 'other' WHERE version = 2",
    ];
    for sql in cases {
        let image = changed(&image, sql);
        for _ in 0..2 {
            let dir = image.restored();
            assert!(open(dir.path()).is_err(), "{sql}");
            let before = names(dir.path());
            let accepted = accept_loss(&options(dir.path()), &clock());
            assert!(matches!(accepted, Err(OpenError::Store { damaged: true, .. })), "{sql}: {accepted:?}");
            assert_eq!(names(dir.path()), before, "{sql}");
        }
    }
}

/// A refused acceptance leaves neither a draft of the progress nor copies of the WAL.
#[test]
fn a_failed_acceptance_leaves_no_files() {
    let image = changed(&image(), "UPDATE totals SET checksum = checksum + 1").without(PROGRESS);
    let dir = image.with("ledger.db-wal", &[7; 5_000]).restored();
    let before = names(dir.path());
    for _ in 0..2 {
        assert!(accept_loss(&options(dir.path()), &clock()).is_err());
        assert_eq!(names(dir.path()), before);
    }
}

/// Whatever is damaged: the loss is accepted and the ledger starts, or the acceptance says why it can't be.
#[test]
fn an_acceptance_never_says_that_nothing_is_missing_when_the_ledger_does_not_start() {
    let image = image();
    let (mut mended, mut hopeless) = (0, 0);
    for (n, (at, table)) in places(&image).iter().enumerate().step_by(19) {
        let dir = image.flipped(DATABASE, *at, n).restored();
        if open(dir.path()).is_ok() {
            continue;
        }
        let case = format!("{table}, byte {at}");
        match accept_loss(&options(dir.path()), &clock()) {
            Ok(None) => panic!("{case}: nothing is missing"),
            Ok(Some(_)) => {
                mended += 1;
                open(dir.path()).unwrap_or_else(|error| panic!("{case}: {error}"));
            }
            Err(_) => hopeless += 1,
        }
    }
    assert!(mended > 10 && hopeless > 0, "{mended} mended, {hopeless} not");
}

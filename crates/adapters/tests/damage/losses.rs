//! What is said about a loss, and when it is no reason to stop.

use tidegate_domain::Durability;

use crate::image::{DATABASE, PROGRESS, WAL};
use crate::subject::{Start, Subject};

#[test]
fn the_refusal_says_which_commits_and_numbers_are_missing_and_since_when() {
    let mut subject = Subject::new(Durability::Fsync);
    subject.grow(3);
    subject.stop();
    subject.open();
    subject.grow(2);
    let image = subject.image();
    let Start::Lost(said) = subject.start_on(&image.without(WAL), "no WAL") else { panic!("it started") };
    for part in ["ledger.db: incomplete", "ledger.db-wal is not there", "sequence numbers 4 to 5", "GMT"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let Start::Lost(said) = subject.start_on(&image.without(DATABASE), "no database") else {
        panic!("it started")
    };
    assert!(said.contains("sequence numbers 1 to 5"), "{said}");
    let Start::Lost(said) = subject.start_on(&image.without(PROGRESS), "no progress") else {
        panic!("it started")
    };
    assert!(said.contains("ledger.db-progress is not there"), "{said}");
}

/// With `ledger.sync = "off"` a power cut may take what was answered, and no start is refused for it. Numbers that were
/// given out stay so.
#[test]
fn unsynced_commits_may_be_missing() {
    let mut subject = Subject::new(Durability::OsBuffer);
    subject.grow(3);
    subject.stop();
    subject.open();
    subject.grow(2);
    let image = subject.image();
    subject.starts_without(&image.without(WAL), 2);
    subject.starts_without(&image.without(DATABASE).without(WAL), 0);
    let length = image.bytes(WAL).len();
    for at in [10, 100, length / 2, length - 1] {
        subject.starts_without_some(&image.flipped(WAL, at, 0));
    }
}

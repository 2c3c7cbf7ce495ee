//! Two files damaged at once: the one that lost something, and the one that would tell.

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tidegate_domain::Durability;

use crate::image::{DATABASE, Image, PROGRESS, WAL};
use crate::subject::{Start, Subject};

const SLOT_BYTES: usize = 4_096;
const RECORD_BYTES: usize = 104;

/// Killed in its second life, which is in the WAL.
fn killed() -> (Subject, Image) {
    let mut subject = Subject::new(Durability::Fsync);
    subject.grow(4);
    subject.stop();
    subject.open();
    subject.grow(4);
    let image = subject.image();
    (subject, image)
}

fn assert_lost(subject: &Subject, image: &Image, case: &str) {
    let start = subject.start_on(image, case);
    assert!(matches!(start, Start::Lost(_)), "{case}: {start:?}");
}

/// The same without one file, and with half of its WAL.
fn poorer(image: &Image) -> [(&'static str, Image); 2] {
    let half = image.bytes(WAL).len() / 2;
    [("no WAL", image.without(WAL)), ("half a WAL", image.cut(WAL, half))]
}

#[test]
fn a_missing_wal_is_noticed_whatever_bit_of_the_progress_is_flipped() {
    let (subject, image) = killed();
    for (what, poorer) in poorer(&image) {
        for slot in [0, SLOT_BYTES] {
            for at in (0..RECORD_BYTES).step_by(3) {
                let case = format!("{what}, byte {at} of the record at {slot}");
                assert_lost(&subject, &poorer.flipped(PROGRESS, slot + at, at), &case);
            }
        }
    }
}

#[test]
fn a_missing_wal_is_noticed_when_half_of_the_progress_is_gone() {
    let (subject, image) = killed();
    for (what, poorer) in poorer(&image) {
        for length in [SLOT_BYTES - 1, SLOT_BYTES, SLOT_BYTES + RECORD_BYTES] {
            assert_lost(
                &subject,
                &poorer.cut(PROGRESS, length),
                &format!("{what}, progress of {length} bytes"),
            );
        }
        for slot in [0, SLOT_BYTES] {
            let mut bytes = image.bytes(PROGRESS).to_vec();
            bytes[slot..slot + SLOT_BYTES].fill(0);
            assert_lost(&subject, &poorer.with(PROGRESS, &bytes), &format!("{what}, no record at {slot}"));
        }
    }
}

/// Partial restores: a newer database beside an older progress, and no WAL, or one that is older too.
#[test]
fn a_database_that_is_newer_than_the_progress_is_noticed() {
    let mut subject = Subject::new(Durability::Fsync);
    let mut moments = Vec::new();
    for _ in 0..3 {
        subject.grow(3);
        moments.push(subject.image());
        moments.push(subject.stop());
        subject.open();
    }
    subject.grow(3);
    moments.push(subject.image());
    for (n, older) in moments.iter().enumerate() {
        for (m, image) in moments.iter().enumerate().skip(n + 1) {
            // The directory as it was then, as a whole.
            if older.bytes(DATABASE) == image.bytes(DATABASE) {
                continue;
            }
            let case = format!("database of moment {m}, progress of moment {n}");
            let restored = image.with(PROGRESS, older.bytes(PROGRESS));
            assert_lost(&subject, &restored.without(WAL), &format!("{case}, no WAL"));
            assert_lost(&subject, &restored.with(WAL, older.bytes(WAL)), &format!("{case}, its WAL"));
        }
    }
}

/// What a kill leaves in the middle of a checkpoint: its number is in the database and not in the progress yet, and the WAL
/// has all of it.
#[test]
fn a_kill_in_the_middle_of_a_checkpoint_costs_nothing_while_the_wal_is_there() {
    let (subject, image) = killed();
    for times in 1..3 {
        let dir = image.restored();
        let db = Connection::open(dir.path().join(DATABASE)).unwrap();
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
        for _ in 0..times {
            let number: u32 = db.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
            db.pragma_update(None, "user_version", number + 1).unwrap();
            db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
        }
        drop(db);
        let halfway = Image::of(dir.path());
        assert_ne!(halfway.bytes(DATABASE), image.bytes(DATABASE));
        assert_eq!(subject.start_on(&halfway, "in a checkpoint"), Start::Whole);
        assert_lost(&subject, &halfway.without(WAL), "in a checkpoint, no WAL");
    }
}

/// What a power cut may leave: records that were not synced are gone, torn, or half in their place.
#[test]
fn a_progress_that_is_behind_or_torn_needs_no_operator() {
    let (mut subject, before) = killed();
    subject.grow(3);
    let after = subject.image();
    assert_eq!(before.bytes(DATABASE), after.bytes(DATABASE));
    assert_eq!(subject.start_on(&after.with(PROGRESS, before.bytes(PROGRESS)), "behind"), Start::Whole);
    let (old, new) = (before.bytes(PROGRESS), after.bytes(PROGRESS));
    for cut in (0..2 * SLOT_BYTES).step_by(8) {
        let torn = [&new[..cut], &old[cut..]].concat();
        if torn != old && torn != new {
            assert_eq!(
                subject.start_on(&after.with(PROGRESS, &torn), &format!("torn at {cut}")),
                Start::Whole
            );
        }
    }
}

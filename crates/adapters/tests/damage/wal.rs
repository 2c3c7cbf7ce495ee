//! The WAL: its header, its frames, its end.

use tidegate_domain::Durability;

use crate::image::{Image, WAL};
use crate::subject::{Start, Subject};

const HEADER_BYTES: usize = 32;
const FRAME_BYTES: usize = 24 + 4_096;

/// Killed in its second life: the first one's messages are checkpointed, the second one's in the WAL.
fn killed() -> (Subject, Image) {
    let mut subject = Subject::new(Durability::Fsync);
    subject.grow(6);
    subject.stop();
    subject.open();
    subject.grow(6);
    let image = subject.image();
    (subject, image)
}

/// Killed before anything was checkpointed: all of it, tables included, is in the WAL.
fn never_checkpointed() -> (Subject, Image) {
    let mut subject = Subject::new(Durability::Fsync);
    subject.grow(6);
    let image = subject.image();
    (subject, image)
}

fn lost(start: &Start, case: &str) {
    let Start::Lost(said) = start else { panic!("{case}: {start:?}") };
    assert!(said.contains("ledger.db") && said.contains("Missing: commits"), "{case}: {said}");
}

#[test]
fn a_kill_costs_nothing() {
    for (subject, image) in [killed(), never_checkpointed()] {
        assert_eq!(subject.start_on(&image, "as it was"), Start::Whole);
    }
}

#[test]
fn every_flipped_bit_of_the_header_is_found() {
    for (subject, image) in [killed(), never_checkpointed()] {
        for at in 0..HEADER_BYTES {
            let case = format!("byte {at} of the header");
            lost(&subject.start_on(&image.flipped(WAL, at, at), &case), &case);
        }
    }
}

#[test]
fn a_wal_that_is_cut_anywhere_is_found() {
    let (subject, image) = killed();
    let length = image.bytes(WAL).len();
    let frames = (length - HEADER_BYTES) / FRAME_BYTES;
    assert!(frames > 10, "{frames}");
    for frame in 0..frames {
        let boundary = HEADER_BYTES + frame * FRAME_BYTES;
        for cut in [boundary, boundary + 12, boundary + 24, boundary + 2_000] {
            let case = format!("cut to {cut} of {length} bytes");
            lost(&subject.start_on(&image.cut(WAL, cut), &case), &case);
        }
    }
    for cut in [0, 1, 31] {
        let case = format!("cut to {cut} bytes");
        lost(&subject.start_on(&image.cut(WAL, cut), &case), &case);
    }
}

#[test]
fn a_flipped_bit_in_any_frame_is_found() {
    let (subject, image) = killed();
    let frames = (image.bytes(WAL).len() - HEADER_BYTES) / FRAME_BYTES;
    for frame in 0..frames {
        for within in [0, 5, 9, 14, 17, 22, 24, 1_000, FRAME_BYTES - 1] {
            let at = HEADER_BYTES + frame * FRAME_BYTES + within;
            let case = format!("byte {within} of frame {frame}");
            let start = subject.start_on(&image.flipped(WAL, at, within), &case);
            assert!(matches!(start, Start::Lost(_)), "{case}: {start:?}");
        }
    }
}

/// A commit that was being written when the machine stopped: no caller was answered.
#[test]
fn a_torn_commit_that_was_never_answered_needs_no_operator() {
    let (mut subject, before) = killed();
    let answered = subject.answered.clone();
    subject.grow(1);
    let after = subject.image();
    subject.answered = answered;
    let (from, to) = (before.bytes(WAL).len(), after.bytes(WAL).len());
    assert!(to > from);
    for cut in (from..to).step_by(1_000).chain([to - 1]) {
        let torn = before.with(WAL, &after.bytes(WAL)[..cut]);
        assert_eq!(subject.start_on(&torn, &format!("torn at {cut}")), Start::Whole);
        let mut bytes = after.bytes(WAL).to_vec();
        bytes[cut] ^= 1;
        assert_eq!(subject.start_on(&before.with(WAL, &bytes), &format!("bad at {cut}")), Start::Whole);
    }
}

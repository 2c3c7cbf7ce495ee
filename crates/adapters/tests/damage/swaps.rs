//! Every file of the directory removed, emptied, cut, or exchanged for an older copy or another ledger's.

use tidegate_domain::Durability;

use crate::image::{DATABASE, Image, PROGRESS, WAL};
use crate::subject::{Start, Subject};

/// The same ledger at several moments, the latest last.
fn history() -> (Subject, Vec<(&'static str, Image)>) {
    let mut subject = Subject::new(Durability::Fsync);
    subject.grow(4);
    let mut moments = vec![("killed in the first life", subject.image())];
    moments.push(("stopped after the first life", subject.stop()));
    subject.open();
    subject.grow(4);
    moments.push(("early in the second life", subject.image()));
    subject.grow(4);
    moments.push(("late in the second life", subject.image()));
    moments.push(("stopped after the second life", subject.stop()));
    subject.open();
    subject.grow(4);
    moments.push(("killed in the third life", subject.image()));
    (subject, moments)
}

fn latest(subject: &mut Subject, killed: Image) -> Vec<(&'static str, Image)> {
    vec![("killed", killed), ("stopped", subject.stop())]
}

#[test]
fn every_file_that_is_removed_emptied_or_cut_is_missed() {
    let (mut subject, mut moments) = history();
    let (_, killed) = moments.pop().unwrap();
    for (moment, image) in latest(&mut subject, killed) {
        assert_eq!(subject.start_on(&image, moment), Start::Whole);
        for name in image.names() {
            let length = image.bytes(&name).len();
            let mut cases = vec![("removed".to_owned(), image.without(&name))];
            for keep in [0, 1, 50, 4_096, length / 2, length.saturating_sub(4_096), length.saturating_sub(1)]
            {
                if keep < length {
                    cases.push((format!("cut to {keep} of {length} bytes"), image.cut(&name, keep)));
                }
            }
            for (what, damaged) in cases {
                let case = format!("{moment}, {name} {what}");
                let start = subject.start_on(&damaged, &case);
                let needed =
                    name == DATABASE || name == WAL && length > 0 || name == PROGRESS && what == "removed";
                assert!(!needed || start != Start::Whole, "{case}: {start:?}");
            }
        }
        let bare = image.without(DATABASE).without(WAL);
        assert!(matches!(subject.start_on(&bare, "without its database"), Start::Lost(_)));
    }
}

#[test]
fn every_file_that_is_exchanged_for_an_older_copy_is_noticed_or_does_no_harm() {
    let (mut subject, mut moments) = history();
    let (_, killed) = moments.pop().unwrap();
    for (moment, image) in latest(&mut subject, killed) {
        for (then, older) in &moments {
            for name in [DATABASE, WAL, PROGRESS] {
                if older.bytes(name) == image.bytes(name) {
                    continue;
                }
                let case = format!("{moment}, {name} as of {then}");
                let start = subject.start_on(&image.with(name, older.bytes(name)), &case);
                assert!(name == PROGRESS || start != Start::Whole, "{case}: {start:?}");
            }
            let case = format!("{moment}, all but the progress as of {then}");
            let restored = older.with(PROGRESS, image.bytes(PROGRESS));
            assert!(matches!(subject.start_on(&restored, &case), Start::Lost(_)), "{case}");
        }
    }
}

#[test]
fn the_files_of_another_ledger_are_noticed() {
    let (subject, moments) = history();
    let (other, theirs) = history();
    drop(other);
    let ours = &moments.last().unwrap().1;
    for (then, theirs) in &theirs {
        for name in [DATABASE, WAL, PROGRESS] {
            if theirs.bytes(name).is_empty() {
                continue;
            }
            let case = format!("{name} of another ledger, {then}");
            let start = subject.start_on(&ours.with(name, theirs.bytes(name)), &case);
            assert_ne!(start, Start::Whole, "{case}");
        }
    }
}

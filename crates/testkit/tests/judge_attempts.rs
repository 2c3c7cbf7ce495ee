//! Each fault of delivery, planted once, is found and found alone.

use std::collections::HashMap;

use tidegate_domain::{MessageId, Status, Timestamp};
use tidegate_testkit::journal::{ClientJournal, Outcome, Tried, TriedJournal, WebAnswer};
use tidegate_testkit::judge::{AttemptVerdict, Budget, judge_attempts};

const BUDGET: Budget = Budget { attempts_max: 3, in_flight_max: 2 };

struct Run {
    client: ClientJournal,
    provider: TriedJournal,
    endings: HashMap<MessageId, Status>,
}

fn id(number: u64) -> MessageId {
    MessageId::new(Timestamp::from_millis(1_763_244_000_000), number, 1)
}

fn tried(life: u32, message: &str, place: u64, number: u32, answer: WebAnswer) -> Tried {
    Tried { life, id: id(place), number, message: message.into(), answer }
}

/// One delivered at the second attempt, which a kill repeated; one refused; one dead after three.
fn honest() -> Run {
    let mut client = ClientJournal::default();
    client.note("ann", "ann#1", Outcome::Unknown);
    for (number, text) in [(1, "ann#1"), (2, "ann#2"), (3, "ann#3"), (4, "bob#1")] {
        client.note(&text[..3], text, Outcome::Ok(id(number)));
    }
    use WebAnswer::{Cut, Fail, Late, Refuse, Take, TakeAndFail};
    let attempts = vec![
        tried(1, "ann#1", 1, 1, Fail),
        tried(1, "bob#1", 4, 1, TakeAndFail),
        tried(2, "ann#1", 1, 2, Take),
        // Sent by the process that was killed, and read late.
        tried(1, "ann#1", 1, 2, Take),
        tried(2, "ann#2", 2, 1, Refuse),
        tried(2, "bob#1", 4, 2, Late),
        tried(2, "ann#3", 3, 1, Take),
        tried(2, "bob#1", 4, 3, Cut),
    ];
    let endings = [Status::Delivered, Status::Dead, Status::Delivered, Status::Dead];
    let endings = (1..).map(id).zip(endings).collect();
    Run { client, provider: TriedJournal { attempts, nonsense: 0 }, endings }
}

fn judged(run: &Run) -> AttemptVerdict {
    judge_attempts(&run.client, &run.provider, &run.endings, BUDGET)
}

fn verdict_with(fault: impl FnOnce(&mut Run)) -> AttemptVerdict {
    let mut run = honest();
    fault(&mut run);
    let verdict = judged(&run);
    assert!(!verdict.is_clean(), "{verdict:#?}");
    verdict
}

#[test]
fn an_honest_run_is_clean() {
    let verdict = judged(&honest());
    assert!(verdict.is_clean(), "{verdict:#?}");
    assert_eq!((verdict.attempts, verdict.repeated), (8, 1));
    assert_eq!((verdict.endings["delivered"], verdict.endings["dead"]), (2, 2));
}

#[test]
fn a_later_message_that_overtakes_is_found() {
    let verdict = verdict_with(|run| run.provider.attempts.swap(4, 6));
    assert_eq!((verdict.inverted, verdict.unearned, verdict.lost), (1, 0, 0));
}

#[test]
fn an_attempt_before_its_predecessor_is_found() {
    let verdict = verdict_with(|run| run.provider.attempts.swap(5, 7));
    assert_eq!((verdict.inverted, verdict.given_up_early), (1, 0));
}

#[test]
fn a_settlement_before_the_answer_is_found() {
    let verdict = verdict_with(|run| run.provider.attempts[6].answer = WebAnswer::Fail);
    assert_eq!((verdict.unearned, verdict.inverted), (1, 0));
    let verdict = verdict_with(|run| _ = run.provider.attempts.remove(6));
    assert_eq!((verdict.unearned, verdict.lost), (1, 0));
}

#[test]
fn a_message_that_vanished_is_found() {
    let verdict = verdict_with(|run| _ = run.endings.remove(&id(3)));
    assert_eq!((verdict.lost, verdict.unearned), (1, 0));
    let verdict = verdict_with(|run| _ = run.endings.insert(id(3), Status::Pending));
    assert_eq!(verdict.lost, 1);
}

#[test]
fn one_attempt_too_many_is_found() {
    let more = tried(2, "bob#1", 4, 4, WebAnswer::Fail);
    let verdict = verdict_with(|run| run.provider.attempts.push(more));
    assert_eq!((verdict.over_budget, verdict.given_up_early), (1, 1));
}

#[test]
fn a_dead_letter_with_attempts_left_is_found() {
    let verdict = verdict_with(|run| _ = run.provider.attempts.pop());
    assert_eq!((verdict.given_up_early, verdict.over_budget), (1, 0));
    let verdict = verdict_with(|run| run.provider.attempts[7].answer = WebAnswer::Take);
    assert_eq!((verdict.given_up_early, verdict.unearned), (1, 0));
}

#[test]
fn a_repetition_without_a_kill_is_found() {
    let again = tried(2, "bob#1", 4, 3, WebAnswer::Fail);
    let verdict = verdict_with(|run| run.provider.attempts.push(again));
    assert_eq!((verdict.repeated, verdict.repeated_too_often), (2, 1));
}

#[test]
fn more_repetitions_than_were_in_flight_are_found() {
    let verdict = verdict_with(|run| {
        for (text, place) in [("cid#1", 5), ("dee#1", 6)] {
            run.client.note(&text[..3], text, Outcome::Ok(id(place)));
            run.endings.insert(id(place), Status::Delivered);
            let attempts = [1, 2].map(|life| tried(life, text, place, 1, WebAnswer::Take));
            run.provider.attempts.extend(attempts);
        }
    });
    assert_eq!((verdict.repeated, verdict.repeated_too_often), (3, 1));
}

#[test]
fn what_nobody_asked_for_is_found() {
    let unasked = tried(2, "eve#1", 9, 1, WebAnswer::Take);
    assert_eq!(verdict_with(|run| run.provider.attempts.push(unasked)).phantom, 1);
    assert_eq!(verdict_with(|run| run.provider.attempts[6].id = id(9)).phantom, 1);
}

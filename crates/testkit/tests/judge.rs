//! Each fault, planted once, is found and found alone.

use std::collections::BTreeMap;

use tidegate_domain::{MessageId, Timestamp};
use tidegate_testkit::journal::{ClientJournal, Outcome, ProviderJournal};
use tidegate_testkit::judge::{Verdict, judge};

fn id(number: u64) -> MessageId {
    MessageId::new(Timestamp::from_millis(1_763_244_000_000), number, 1)
}

/// Two users with three messages each; the third of "b" was refused, the second answered at the second try.
fn honest() -> (ClientJournal, ProviderJournal, BTreeMap<String, u32>) {
    let mut client = ClientJournal::default();
    client.note("a", "a#1", Outcome::Ok(id(1)));
    client.note("a", "a#2", Outcome::Ok(id(2)));
    client.note("b", "b#1", Outcome::Ok(id(3)));
    client.note("b", "b#2", Outcome::Unknown);
    client.note("b", "b#2", Outcome::Ok(id(4)));
    client.note("b", "b#3", Outcome::Refused(429));
    client.note("a", "a#3", Outcome::Unknown);
    let mut provider = ProviderJournal::default();
    for (number, user, message) in [(3, "b", "b#1"), (1, "a", "a#1"), (2, "a", "a#2"), (4, "b", "b#2")] {
        provider.note(id(number), Some(user), message);
    }
    (client, provider, BTreeMap::from([("b".into(), 2)]))
}

fn verdict_with(fault: impl FnOnce(&mut ClientJournal, &mut ProviderJournal)) -> Verdict {
    let (mut client, mut provider, limits) = honest();
    fault(&mut client, &mut provider);
    let verdict = judge(&client, &provider, &limits);
    assert!(!verdict.is_clean(), "{verdict}");
    verdict
}

#[test]
fn an_honest_run_is_clean() {
    let (client, provider, limits) = honest();
    let verdict = judge(&client, &provider, &limits);
    assert!(verdict.is_clean(), "{verdict}");
    assert_eq!((verdict.asked, verdict.acknowledged, verdict.delivered, verdict.unknown), (6, 4, 4, 1));
    assert_eq!(verdict.duplicated, 0);
}

#[test]
fn what_was_never_answered_may_have_been_delivered() {
    let (client, mut provider, limits) = honest();
    provider.note(id(5), Some("a"), "a#3");
    assert!(judge(&client, &provider, &limits).is_clean());
}

#[test]
fn a_lost_message_is_found() {
    let verdict = verdict_with(|_, provider| _ = provider.deliveries.remove(2));
    assert_eq!((verdict.lost, verdict.phantom, verdict.out_of_order), (1, 0, 0));
}

#[test]
fn a_message_that_nobody_asked_for_is_found() {
    let verdict = verdict_with(|_, provider| provider.note(id(9), Some("a"), "a#9"));
    assert_eq!((verdict.phantom, verdict.lost), (1, 0));
}

#[test]
fn a_refused_message_that_went_out_is_found() {
    let verdict = verdict_with(|_, provider| provider.note(id(9), Some("b"), "b#3"));
    assert_eq!((verdict.phantom, verdict.over_quota), (1, 1));
}

#[test]
fn a_message_for_another_user_is_found() {
    let verdict = verdict_with(|_, provider| provider.deliveries[0].user = Some("a".into()));
    assert_eq!((verdict.phantom, verdict.lost), (1, 0));
}

#[test]
fn a_swap_within_a_user_is_found() {
    let verdict = verdict_with(|_, provider| provider.deliveries.swap(1, 2));
    assert_eq!((verdict.out_of_order, verdict.lost, verdict.phantom), (1, 0, 0));
}

#[test]
fn one_too_many_is_found() {
    let verdict = verdict_with(|client, provider| {
        client.note("b", "b#4", Outcome::Ok(id(5)));
        provider.note(id(5), Some("b"), "b#4");
    });
    assert_eq!((verdict.over_quota, verdict.phantom, verdict.lost), (1, 0, 0));
}

#[test]
fn a_charge_without_a_message_is_found() {
    let verdict = verdict_with(|client, provider| {
        client.tries.retain(|entry| &*entry.message != "b#2");
        provider.deliveries.retain(|handed| &*handed.message != "b#2");
    });
    assert_eq!((verdict.short_changed, verdict.lost, verdict.over_quota), (1, 0, 0));
}

#[test]
fn one_key_with_two_messages_is_found() {
    let verdict = verdict_with(|client, _| client.note("a", "a#1", Outcome::Ok(id(7))));
    assert_eq!((verdict.split_keys, verdict.lost), (1, 0));
    let verdict = verdict_with(|_, provider| provider.note(id(7), Some("a"), "a#1"));
    assert_eq!((verdict.split_keys, verdict.duplicated, verdict.phantom), (1, 1, 1));
}

#[test]
fn a_second_delivery_is_counted_and_does_not_disturb_the_order() {
    let (client, mut provider, limits) = honest();
    provider.note(id(1), Some("a"), "a#1");
    let verdict = judge(&client, &provider, &limits);
    assert_eq!((verdict.duplicated, verdict.is_clean()), (1, true));
}

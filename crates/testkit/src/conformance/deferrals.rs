//! Over the quota a message may wait for a later window, which it then counts in.

use tidegate_domain::limits::Quota;
use tidegate_domain::{Admitted, Clock, Due, OnLimit, Timestamp};

use super::steps::{Draft, sms, user};
use crate::Harness;

const MINUTE_MS: u64 = 60_000;
const DAY_MS: u64 = 24 * 60 * MINUTE_MS;

pub async fn over_the_quota_it_is_due_when_the_next_window_begins(h: &Harness) {
    let since = h.clock.now();
    h.put_limit("ann", 1).await;
    h.put(sms("now").charged_to("ann")).await;
    h.clock.advance_ms(10_000);
    let answer = h.admit_one(deferred("later", DAY_MS)).await;
    let Admitted::Deferred { id, at, due, quota } = answer else { panic!("{answer:?}") };
    assert_eq!((at, due), (h.clock.now(), since.plus_ms(MINUTE_MS)));
    assert_eq!(quota, Quota { limit: 1, window_ms: MINUTE_MS, count: 1, since, exempts_high: false });
    assert_eq!(h.record(id).await.due_at, due);
    assert_eq!(h.deliver_all().await, ["now"]);
    h.clock.advance_ms(50_000 - 1);
    assert_eq!(h.claim(9).await, []);
    h.clock.advance_ms(1);
    assert_eq!(h.deliver_all().await, ["later"]);
}

pub async fn within_the_quota_nothing_is_deferred(h: &Harness) {
    h.put_limit("ann", 1).await;
    h.put(deferred("now", DAY_MS)).await;
    assert_eq!(h.deliver_all().await, ["now"]);
    let unknown = Draft(tidegate_domain::Admission { charge: Some(user("bob")), ..deferred("b", DAY_MS).0 });
    assert_eq!(h.admit_one(unknown).await, Admitted::UnknownUser);
}

pub async fn deferred_messages_fill_window_after_window(h: &Harness) {
    let since = h.clock.now();
    h.put_limit("ann", 2).await;
    let answers = h.admit((0..7).map(|n| deferred(&n.to_string(), DAY_MS))).await;
    let windows: Vec<_> = answers.iter().map(|answer| window_of(answer, since)).collect();
    assert_eq!(windows, [0, 0, 1, 1, 2, 2, 3]);
}

pub async fn later_sends_see_what_was_deferred_into_their_window(h: &Harness) {
    let since = h.clock.now();
    h.put_limit("ann", 2).await;
    h.admit((0..5).map(|n| deferred(&n.to_string(), DAY_MS))).await;
    h.clock.advance_ms(MINUTE_MS + 7_000);
    let answer = h.admit_one(sms("direct").charged_to("ann")).await;
    assert!(matches!(answer, Admitted::OverQuota { retry_after_ms: 53_000, .. }), "{answer:?}");
    let seen = h.ledger().quota(user("ann")).await.expect("quota").expect("a quota");
    assert_eq!((seen.count, seen.since), (2, since.plus_ms(MINUTE_MS)));
    h.clock.advance_ms(MINUTE_MS);
    h.put(sms("direct").charged_to("ann")).await;
    let full = h.admit_one(sms("one more").charged_to("ann")).await;
    assert!(matches!(full, Admitted::OverQuota { .. }), "one deferred, one direct: {full:?}");
}

pub async fn past_the_horizon_it_is_denied(h: &Harness) {
    h.put_limit("ann", 1).await;
    h.put(sms("now").charged_to("ann")).await;
    let books = h.counts().await;
    let denied = h.admit_one(deferred("a", MINUTE_MS - 1)).await;
    assert!(matches!(denied, Admitted::OverQuota { retry_after_ms: MINUTE_MS, .. }), "{denied:?}");
    assert_eq!(h.counts().await, books);
    assert!(matches!(h.admit_one(deferred("b", MINUTE_MS)).await, Admitted::Deferred { .. }));
    assert!(matches!(h.admit_one(deferred("c", MINUTE_MS)).await, Admitted::OverQuota { .. }));
}

pub async fn deferred_messages_survive_a_reopen_in_mid_window(h: &Harness) {
    let since = h.clock.now();
    h.put_limit("ann", 2).await;
    h.admit((0..5).map(|n| deferred(&n.to_string(), DAY_MS))).await;
    h.clock.advance_ms(20_000);
    h.reopen().await.expect("reopen");
    assert_eq!(window_of(&h.admit_one(deferred("5", DAY_MS)).await, since), 2);
    assert_eq!(window_of(&h.admit_one(deferred("6", DAY_MS)).await, since), 3);
    h.clock.advance_ms(MINUTE_MS);
    h.reopen().await.expect("reopen");
    let answer = h.admit_one(sms("direct").charged_to("ann")).await;
    assert!(matches!(answer, Admitted::OverQuota { retry_after_ms: 40_000, .. }), "{answer:?}");
    assert_eq!(h.deliver_all().await, ["0", "1", "2", "3"]);
}

pub async fn a_deferred_message_keeps_its_recipients_order(h: &Harness) {
    h.put_limit("ann", 1).await;
    h.put(deferred("first", DAY_MS).to("ann")).await;
    assert!(matches!(h.admit_one(deferred("second", DAY_MS).to("ann")).await, Admitted::Deferred { .. }));
    h.put(sms("third").to("ann")).await;
    assert_eq!(h.deliver_all().await, ["first"]);
    h.clock.advance_ms(MINUTE_MS);
    assert_eq!(h.deliver_all().await, ["second", "third"]);
}

pub async fn a_deferred_message_is_never_earlier_than_it_asked(h: &Harness) {
    h.put_limit("ann", 1).await;
    h.put(sms("now").charged_to("ann")).await;
    let wish = h.clock.now().plus_ms(3 * MINUTE_MS);
    let answer = h.admit_one(deferred("later", DAY_MS).due(Due::At(wish))).await;
    assert!(matches!(answer, Admitted::Deferred { due, .. } if due == wish), "{answer:?}");
}

pub async fn a_deleted_quota_is_unknown(h: &Harness) {
    h.put_limit("ann", 1).await;
    h.put(sms("a").charged_to("ann")).await;
    assert!(h.ledger().delete_quota(user("ann")).await.expect("delete_quota"));
    assert_eq!(h.admit_one(sms("b").charged_to("ann")).await, Admitted::UnknownUser);
    assert!(!h.ledger().delete_quota(user("ann")).await.expect("delete_quota"));
    h.reopen().await.expect("reopen");
    assert_eq!(h.ledger().quota(user("ann")).await.expect("quota"), None);
    assert_eq!(h.deliver_all().await, ["a"], "what was admitted stays");
    h.put_limit("ann", 1).await;
    h.put(sms("c").charged_to("ann")).await;
}

/// Otherwise an admin who deletes a quota and sets it again fills the later windows twice.
pub async fn a_quota_set_again_counts_what_was_deferred_before(h: &Harness) {
    let since = h.clock.now();
    h.put_limit("ann", 2).await;
    h.admit((0..6).map(|n| deferred(&n.to_string(), DAY_MS))).await;
    for reopened in [false, true] {
        assert!(h.ledger().delete_quota(user("ann")).await.expect("delete_quota"));
        if reopened {
            h.reopen().await.expect("reopen");
        }
        h.ledger().sweep().await.expect("sweep");
        assert_eq!(h.ledger().quota(user("ann")).await.expect("quota"), None);
        assert_eq!(h.ledger().quotas(None, 9).await.expect("quotas"), []);
        assert_eq!(h.admit_one(deferred("unknown", DAY_MS)).await, Admitted::UnknownUser);
        assert!(!h.ledger().delete_quota(user("ann")).await.expect("delete_quota"));
        assert_eq!(h.put_limit("ann", 2).await.count, 0);
        let answers = h.admit((0..3).map(|n| deferred(&n.to_string(), DAY_MS))).await;
        let windows: Vec<_> = answers.iter().map(|answer| window_of(answer, since)).collect();
        assert_eq!(windows, [0, 0, 3], "windows 1 and 2 are full");
    }
    h.clock.advance_ms(MINUTE_MS);
    let full = h.admit_one(sms("direct").charged_to("ann")).await;
    assert!(matches!(full, Admitted::OverQuota { .. }), "{full:?}");
}

/// What is due soon counts in the window that a change of the quota opens, and in the one that the next change opens.
pub async fn a_quota_changed_twice_counts_what_was_deferred_before(h: &Harness) {
    h.put_limit("ann", 2).await;
    h.admit((0..4).map(|n| deferred(&n.to_string(), DAY_MS))).await;
    for reopened in [false, false, true] {
        h.clock.advance_ms(10_000);
        assert_eq!(h.put_limit("ann", 2).await.count, 2, "two are due within the minute");
        if reopened {
            h.reopen().await.expect("reopen");
        }
        let full = h.admit_one(sms("direct").charged_to("ann")).await;
        assert!(matches!(full, Admitted::OverQuota { .. }), "{full:?}");
        assert!(h.ledger().delete_quota(user("ann")).await.expect("delete_quota"));
    }
    let changed = h.clock.now();
    assert_eq!(h.put_limit("ann", 2).await.count, 2);
    // Two go out 30 s after the change and fill its first window, so these are put off to the next one.
    let answers = h.admit((4..6).map(|n| deferred(&n.to_string(), DAY_MS))).await;
    assert_eq!(answers.iter().map(|answer| window_of(answer, changed)).collect::<Vec<_>>(), [1, 1]);
    h.clock.advance_ms(50_000);
    assert_eq!(h.put_limit("ann", 2).await.count, 2, "two are due in ten seconds, two have gone out");
    h.clock.advance_ms(10_000);
    assert_eq!(h.put_limit("ann", 2).await.count, 0, "all have gone out");
}

pub async fn a_deleted_quota_is_forgotten_with_its_last_window(h: &Harness) {
    h.put_limit("ann", 1).await;
    h.admit((0..3).map(|n| deferred(&n.to_string(), DAY_MS))).await;
    assert!(h.ledger().delete_quota(user("ann")).await.expect("delete_quota"));
    h.clock.advance_ms(2 * MINUTE_MS);
    for _ in 0..2 {
        h.ledger().sweep().await.expect("sweep");
        h.reopen().await.expect("reopen");
    }
    let since = h.clock.now();
    assert_eq!(h.put_limit("ann", 1).await, Quota::new(1, MINUTE_MS, since));
    let answers = h.admit((0..2).map(|n| deferred(&n.to_string(), DAY_MS))).await;
    assert_eq!(answers.iter().map(|answer| window_of(answer, since)).collect::<Vec<_>>(), [0, 1]);
}

pub async fn quotas_are_listed_by_user_id_page_by_page(h: &Harness) {
    for name in ["carl", "ann", "bob", "dora", "Z"] {
        h.put_limit(name, 3).await;
    }
    h.put(sms("a").charged_to("bob")).await;
    h.ledger().delete_quota(user("carl")).await.expect("delete_quota");
    let first = h.ledger().quotas(None, 3).await.expect("quotas");
    let listed: Vec<_> = first.iter().map(|(user, quota)| (user.as_str(), quota.count)).collect();
    assert_eq!(listed, [("Z", 0), ("ann", 0), ("bob", 1)]);
    let rest = h.ledger().quotas(Some(user("bob")), 3).await.expect("quotas");
    assert_eq!(rest.iter().map(|(user, _)| user.as_str()).collect::<Vec<_>>(), ["dora"]);
    assert_eq!(h.ledger().quotas(Some(user("dora")), 3).await.expect("quotas"), []);
}

fn deferred(body: &str, horizon_ms: u64) -> Draft {
    let mut draft = sms(body).charged_to("ann");
    draft.0.on_limit = OnLimit::Defer { horizon_ms };
    draft
}

/// How many windows after the one that began then.
fn window_of(answer: &Admitted, since: Timestamp) -> u64 {
    match answer {
        Admitted::Admitted { .. } => 0,
        Admitted::Deferred { due, .. } => due.since_ms(since) / MINUTE_MS,
        other => panic!("refused: {other:?}"),
    }
}

impl Harness {
    async fn put_limit(&self, name: &str, limit: u32) -> Quota {
        self.ledger().put_quota(user(name), limit, MINUTE_MS).await.expect("put_quota")
    }
}

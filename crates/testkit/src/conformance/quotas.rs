//! No window ever holds more than its limit.

use tidegate_domain::limits::Quota;
use tidegate_domain::{Admitted, Clock};
use tokio::task::JoinSet;

use super::steps::{sms, user};
use crate::Harness;

const MINUTE_MS: u64 = 60_000;

pub async fn a_charge_counts_and_is_answered(h: &Harness) {
    let since = h.clock.now();
    let put = h.put_minute_quota("ann", 3).await;
    assert_eq!(put, Quota { limit: 3, window_ms: MINUTE_MS, count: 0, since, exempts_high: false });
    h.clock.advance_ms(10);
    let answer = h.admit_one(sms("a").charged_to("ann")).await;
    let Admitted::Admitted { id, quota: Some(quota), .. } = answer else { panic!("{answer:?}") };
    assert_eq!(quota, Quota { count: 1, ..put });
    assert_eq!(h.quota_of("ann").await, Some(quota));
    assert_eq!(h.record(id).await.user, Some(user("ann")));
}

pub async fn past_the_limit_the_wait_is_answered_and_nothing_changes(h: &Harness) {
    h.put_minute_quota("ann", 1).await;
    h.put(sms("a").charged_to("ann")).await;
    let (books, quota) = (h.counts().await, h.quota_of("ann").await.expect("a quota"));
    h.clock.advance_ms(20_000);
    let answer = h.admit_one(sms("b").charged_to("ann")).await;
    assert_eq!(answer, Admitted::OverQuota { retry_after_ms: 40_000, at: h.clock.now(), quota });
    assert_eq!(h.counts().await, books);
    assert_eq!(h.quota_of("ann").await, Some(quota));
}

pub async fn the_window_opens_again_when_it_has_elapsed(h: &Harness) {
    h.put_minute_quota("ann", 1).await;
    h.put(sms("a").charged_to("ann")).await;
    h.clock.advance_ms(MINUTE_MS - 1);
    let early = h.admit_one(sms("b").charged_to("ann")).await;
    assert!(matches!(early, Admitted::OverQuota { retry_after_ms: 1, .. }), "{early:?}");
    h.clock.advance_ms(1);
    h.put(sms("c").charged_to("ann")).await;
    let quota = h.quota_of("ann").await.expect("a quota");
    assert_eq!((quota.count, quota.since), (1, h.clock.now()));
}

pub async fn the_last_slot_goes_to_exactly_one_of_many(h: &Harness) {
    h.put_minute_quota("ann", 3).await;
    h.put_all([sms("a").charged_to("ann"), sms("b").charged_to("ann")]).await;
    let mut tasks = JoinSet::new();
    for n in 0..32 {
        let ledger = h.ledger();
        tasks.spawn(async move { ledger.admit(vec![sms(&n.to_string()).charged_to("ann").0]).await });
    }
    let answers: Vec<_> =
        tasks.join_all().await.into_iter().flat_map(|answer| answer.expect("admit")).collect();
    let passed = answers.iter().filter(|answer| matches!(answer, Admitted::Admitted { .. })).count();
    let denied = answers.iter().filter(|answer| matches!(answer, Admitted::OverQuota { .. })).count();
    assert_eq!((passed, denied), (1, 31));
    assert_eq!(h.quota_of("ann").await.map(|quota| quota.count), Some(3));
    assert_eq!(h.counts().await.admitted, 3);
}

pub async fn configuring_resets_the_count(h: &Harness) {
    h.put_minute_quota("ann", 1).await;
    h.put(sms("a").charged_to("ann")).await;
    h.clock.advance_ms(5);
    let quota = h.put_minute_quota("ann", 2).await;
    assert_eq!(quota, Quota::new(2, MINUTE_MS, h.clock.now()));
    assert_eq!(h.quota_of("ann").await, Some(quota));
    h.put_all([sms("b").charged_to("ann"), sms("c").charged_to("ann")]).await;
    let answer = h.admit_one(sms("d").charged_to("ann")).await;
    assert!(matches!(answer, Admitted::OverQuota { .. }), "{answer:?}");
}

pub async fn a_user_without_a_quota_is_unknown(h: &Harness) {
    assert_eq!(h.quota_of("ann").await, None);
    assert_eq!(h.admit_one(sms("a").charged_to("ann")).await, Admitted::UnknownUser);
    assert_eq!(h.counts().await.admitted, 0);
    assert_eq!(h.quota_of("ann").await, None);
}

pub async fn a_batch_is_charged_in_order(h: &Harness) {
    h.put_minute_quota("ann", 2).await;
    let answers = h.admit(["a", "b", "c"].map(|body| sms(body).to("ann").charged_to("ann"))).await;
    let counts: Vec<_> = answers
        .iter()
        .map(|answer| match answer {
            Admitted::Admitted { quota, .. } => quota.map(|quota| quota.count),
            _ => None,
        })
        .collect();
    assert_eq!(counts, [Some(1), Some(2), None]);
    assert_eq!(h.deliver_all().await, ["a", "b"]);
}

pub async fn users_do_not_share_a_quota(h: &Harness) {
    h.put_minute_quota("ann", 1).await;
    h.put_minute_quota("bob", 1).await;
    h.put_all([sms("a").charged_to("ann"), sms("b").charged_to("bob")]).await;
    assert!(matches!(h.admit_one(sms("c").charged_to("ann")).await, Admitted::OverQuota { .. }));
}

pub async fn a_clock_set_back_neither_adds_quota_nor_shuts_out(h: &Harness) {
    h.put_minute_quota("ann", 2).await;
    h.put(sms("a").charged_to("ann")).await;
    let day_before = h.clock.now().minus_ms(24 * 60 * MINUTE_MS);
    h.reopen_after(|clock| clock.set(day_before)).await.expect("reopen");
    h.put(sms("b").charged_to("ann")).await;
    let answer = h.admit_one(sms("c").charged_to("ann")).await;
    assert!(matches!(answer, Admitted::OverQuota { retry_after_ms: MINUTE_MS, .. }), "{answer:?}");
    h.clock.advance_ms(MINUTE_MS);
    h.put(sms("d").charged_to("ann")).await;
}

impl Harness {
    pub(super) async fn put_minute_quota(&self, name: &str, limit: u32) -> Quota {
        self.ledger().put_quota(user(name), limit, MINUTE_MS).await.expect("put_quota")
    }

    pub(super) async fn quota_of(&self, name: &str) -> Option<Quota> {
        self.ledger().quota(user(name)).await.expect("quota")
    }
}

//! A quota may let urgent messages pass when its window is full. No window holds more of the others than its limit.

use tidegate_domain::limits::{Quota, QuotaRule};
use tidegate_domain::{Admission, Admitted, Clock, Lane, OnLimit};

use super::steps::{Draft, sms, user};
use crate::Harness;

const MINUTE_MS: u64 = 60_000;

fn urgent(text: &str) -> Draft {
    sms(text).charged_to("ann").lane(Lane::High)
}

fn deferred(draft: Draft) -> Draft {
    Draft(Admission { on_limit: OnLimit::Defer { horizon_ms: MINUTE_MS }, ..draft.0 })
}

fn other(text: &str) -> Draft {
    sms(text).charged_to("ann")
}

impl Harness {
    async fn put_lenient_quota(&self, limit: u32) -> Quota {
        let rule = QuotaRule { limit, window_ms: MINUTE_MS, exempts_high: true };
        self.ledger().set_quota(user("ann"), rule).await.expect("set_quota")
    }
}

fn count_of(answer: &Admitted) -> u32 {
    match answer {
        Admitted::Admitted { quota: Some(quota), .. } => quota.count,
        other => panic!("{other:?}"),
    }
}

pub async fn urgent_messages_take_what_is_there_and_pass_without_it(h: &Harness) {
    let put = h.put_lenient_quota(2).await;
    assert!(put.exempts_high && h.quota_of("ann").await == Some(put));
    let counts = [
        count_of(&h.admit_one(urgent("a")).await),
        count_of(&h.admit_one(other("b")).await),
        count_of(&h.admit_one(urgent("c")).await),
        count_of(&h.admit_one(urgent("d")).await),
    ];
    assert_eq!(counts, [1, 2, 2, 2], "the window was full by then");
    for lane in [Lane::Normal, Lane::Low] {
        let denied = h.admit_one(other("e").lane(lane)).await;
        assert!(matches!(denied, Admitted::OverQuota { retry_after_ms: MINUTE_MS, .. }), "{denied:?}");
    }
    h.clock.advance_ms(MINUTE_MS);
    assert_eq!(count_of(&h.admit_one(other("f")).await), 1, "what passed without room fills no later window");
    let strict = h.put_minute_quota("bob", 1).await;
    assert!(!strict.exempts_high);
    h.put(urgent("g").charged_to("bob")).await;
    let denied = h.admit_one(urgent("h").charged_to("bob")).await;
    assert!(matches!(denied, Admitted::OverQuota { .. }), "off unless it is said: {denied:?}");
}

pub async fn an_exempt_message_is_not_deferred(h: &Harness) {
    h.put_lenient_quota(1).await;
    h.put(other("a")).await;
    let later = h.admit_one(deferred(other("b"))).await;
    assert!(matches!(later, Admitted::Deferred { .. }), "{later:?}");
    let now = h.admit_one(deferred(urgent("c"))).await;
    assert!(matches!(now, Admitted::Admitted { .. }), "{now:?}");
    h.clock.advance_ms(MINUTE_MS);
    assert_eq!(h.quota_of("ann").await.map(|quota| quota.count), Some(1), "the deferred one");
    let now = h.admit_one(deferred(urgent("d"))).await;
    assert_eq!(count_of(&now), 1);
}

pub async fn of_a_batch_only_what_is_exempt_passes_a_full_window(h: &Harness) {
    h.put_lenient_quota(2).await;
    // The first urgent message takes its place in the window, as it would alone.
    let batch = vec![urgent("a").0, other("b").0, urgent("c").0, other("d").0, urgent("e").0];
    let answers = h.ledger().admit(batch).await.expect("admit");
    let passed: Vec<_> = answers.iter().map(|answer| matches!(answer, Admitted::Admitted { .. })).collect();
    assert_eq!(passed, [true, true, true, false, true], "{answers:?}");
    assert_eq!(h.counts().await.admitted, 4);
}

pub async fn an_exemption_survives_a_reopen_and_ends_with_its_quota(h: &Harness) {
    let put = h.put_lenient_quota(1).await;
    h.put(other("a")).await;
    h.put(urgent("b")).await;
    h.reopen().await.expect("reopen");
    assert_eq!(h.quota_of("ann").await, Some(Quota { count: 1, ..put }));
    assert_eq!(count_of(&h.admit_one(urgent("c")).await), 1);
    let since = h.clock.now();
    assert_eq!(h.put_minute_quota("ann", 1).await, Quota::new(1, MINUTE_MS, since));
    h.put(urgent("d")).await;
    let denied = h.admit_one(urgent("e")).await;
    assert!(matches!(denied, Admitted::OverQuota { .. }), "{denied:?}");
}

//! The fake provider does what its script says and forgets nothing.

use std::sync::Arc;

use tidegate_domain::{Channel, Delivery};
use tidegate_testkit::HANG;
use tidegate_testkit::conformance::sms;
use tidegate_testkit::{FakeProvider, Harness, ModelBackend, Setup, Step};

#[tokio::test]
async fn the_script_is_followed_and_every_attempt_is_journaled() {
    let harness = Harness::open(ModelBackend::default(), Setup::default()).await.unwrap();
    harness.put(sms("hello")).await;
    let claim = harness.claim_one().await;
    let body = claim.body.clone().unwrap();

    let provider = FakeProvider::new([Step::TryLater { after_ms: Some(5) }, Step::Refuse], Step::Deliver);
    let later = Delivery::TryLater { after_ms: Some(5), reason: "busy".into() };
    assert_eq!(provider.deliver(&claim, &body).await, later);
    assert!(matches!(provider.deliver(&claim, &body).await, Delivery::Refused { .. }));
    assert_eq!(provider.deliver(&claim, &body).await, Delivery::Delivered);
    assert_eq!(provider.attempts_reach(3, HANG).await.unwrap().len(), 3);
    assert_eq!(&*provider.journal().deliveries[0].message, "hello");
    assert_eq!(provider.journal().deliveries.len(), 1);
}

#[tokio::test]
async fn a_stalled_attempt_is_seen_and_never_answered() {
    let harness = Harness::open(ModelBackend::default(), Setup::default()).await.unwrap();
    harness.put(sms("hello")).await;
    let claim = harness.claim_one().await;
    let provider = Arc::new(FakeProvider::new([], Step::Stall));
    let stalled = tokio::spawn({
        let provider = provider.clone();
        async move { provider.deliver(&claim, &"hello".into()).await }
    });
    assert_eq!(provider.attempts_reach(1, HANG).await.unwrap()[0].step, Step::Stall);
    assert!(!stalled.is_finished());
    stalled.abort();
}

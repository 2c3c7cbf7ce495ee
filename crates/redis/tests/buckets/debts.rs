//! What was let pass without Redis is charged when Redis is back.

use tidegate_domain::limits::{Buckets as _, Fallen, Lack, PolicyId, Take};
use tidegate_testkit::services::Redis;

use crate::steps::{configure, eventually, passes, remaining, rule};
use crate::versions::Cuttable;

/// So many tokens of a bucket of ten that lacked so many before.
fn fallen(key: &str, tokens: u32, lacked: u64) -> Fallen<'_> {
    Fallen { take: Take { policy: PolicyId(0), key }, tokens, before: Lack { owed: lacked, of: 10 } }
}

#[tokio::test]
async fn what_passed_meanwhile_is_charged_once_whether_or_not_redis_was_emptied() {
    let redis = Redis::start().unwrap();
    for emptied in [false, true] {
        redis.ask(&["FLUSHALL"]).unwrap();
        let one = Cuttable::open(&redis).await;
        // What is owed under a rule that never refills stays as it is while the test runs.
        for refill in [0.001, 0.0] {
            let key = format!("x{refill}");
            configure(&one.store, &[rule(10, refill)]).await;
            for _ in 0..4 {
                assert!(passes(&one.store, &key).await);
            }
            one.cut().await;
            if emptied {
                redis.ask(&["FLUSHALL"]).unwrap();
            }
            one.store.owe(&[fallen(&key, 1, 4), fallen("full", 0, 0)]);
            one.store.owe(&[fallen(&key, 2, 5)]);
            one.heal().await;
            assert_eq!(remaining(&one.store, &key).await, 3, "emptied: {emptied}, refill: {refill}");
            assert_eq!(remaining(&one.store, "full").await, 10);
            one.cut().await;
            one.heal().await;
            assert_eq!(remaining(&one.store, &key).await, 3, "charged twice");
        }
    }
}

#[tokio::test]
async fn more_than_there_is_leaves_an_empty_bucket() {
    let redis = Redis::start().unwrap();
    let one = Cuttable::open(&redis).await;
    configure(&one.store, &[rule(10, 0.001)]).await;
    one.cut().await;
    one.store.owe(&[fallen("x", 25, 0)]);
    one.heal().await;
    assert!(!passes(&one.store, "x").await);
}

/// A call that was late leaves the connection in use: there is no new one to charge it on.
#[tokio::test]
async fn what_is_owed_while_redis_is_there_is_charged_soon() {
    let redis = Redis::start().unwrap();
    let one = Cuttable::open(&redis).await;
    configure(&one.store, &[rule(10, 0.001)]).await;
    one.store.owe(&[fallen("x", 4, 0)]);
    eventually(async || (remaining(&one.store, "x").await == 6).then_some(())).await;
}

#[tokio::test]
async fn many_debts_are_charged_in_several_calls() {
    let redis = Redis::start().unwrap();
    let one = Cuttable::open(&redis).await;
    configure(&one.store, &[rule(10, 0.001)]).await;
    one.cut().await;
    let keys: Vec<_> = (0..1_000).map(|n| format!("key-{n}")).collect();
    one.store.owe(&keys.iter().map(|key| fallen(key, 3, 0)).collect::<Vec<_>>());
    one.heal().await;
    for key in &keys {
        assert_eq!(remaining(&one.store, key).await, 7, "{key}");
    }
}

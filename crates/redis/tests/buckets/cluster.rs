use tidegate_domain::limits::{Buckets as _, BucketsError, PolicyId, Take};
use tidegate_redis::buckets::RedisBuckets;
use tidegate_testkit::services::{Cluster, Redis, RedisOptions};

use crate::steps::{configure, eventually, options, passes, remaining, rule, take};

#[tokio::test]
async fn all_buckets_of_a_request_lie_in_one_slot() {
    let redis =
        Redis::start_with(RedisOptions { cluster: Cluster::AllSlots, ..RedisOptions::default() }).unwrap();
    let store = RedisBuckets::open(options(&redis, "tidegate")).await;
    configure(&store, &[rule(2, 0.0), rule(3, 1.0), rule(9, 0.5)]).await;
    let keys = ["10.0.0.1", "{key}", "tenant}{"];
    let takes: Vec<_> = keys.iter().zip(0..).map(|(key, id)| Take { policy: PolicyId(id), key }).collect();
    for passes in [true, true, false] {
        assert_eq!(store.take(&takes).await.unwrap().passed, passes);
    }
    // Carried, too.
    configure(&store, &[rule(1, 0.1), rule(4, 1.0), rule(8, 0.0)]).await;
    assert!(!store.take(&takes).await.unwrap().passed);
    assert!(passes(&store, "another").await);
}

#[tokio::test]
async fn when_its_slot_moves_the_store_follows() {
    let cluster = |cluster| Redis::start_with(RedisOptions { cluster, ..RedisOptions::default() }).unwrap();
    let (old, new) = (cluster(Cluster::AllSlots), cluster(Cluster::NoSlots));
    let store = RedisBuckets::open(options(&old, "tidegate")).await;
    configure(&store, &[rule(2, 0.001)]).await;
    assert!(passes(&store, "a").await);
    old.hand_over("{tidegate}", &new).unwrap();
    eventually(async || take(&store, "someone else").await.ok()).await;
    for passes_now in [true, true, false] {
        assert_eq!(passes(&store, "a").await, passes_now, "the new node knew nothing");
    }
    let there = new.ask(&["EXISTS", "{tidegate}:bucket:policy-0:a"]).unwrap();
    assert_eq!(there, ":1\r\n");
    // A gateway that starts at the old node is sent to the new one.
    let late = RedisBuckets::open(options(&old, "tidegate")).await;
    configure(&late, &[rule(2, 0.001)]).await;
    eventually(async || take(&late, "a").await.ok().filter(|taken| !taken.passed)).await;
}

/// Once the slot has moved, callers are sent there for good. Until then the other node sends them back.
#[tokio::test]
async fn while_its_slot_moves_the_store_stays() {
    let cluster = |cluster| Redis::start_with(RedisOptions { cluster, ..RedisOptions::default() }).unwrap();
    let (old, new) = (cluster(Cluster::AllSlots), cluster(Cluster::NoSlots));
    let store = RedisBuckets::open(options(&old, "tidegate")).await;
    configure(&store, &[rule(9, 0.001)]).await;
    assert!(passes(&store, "here").await);
    old.begin_hand_over("{tidegate}", &new).unwrap();
    for left in [7, 6, 5] {
        let BucketsError::Unavailable(why) = take(&store, "elsewhere").await.unwrap_err();
        assert!(why.starts_with("ASK"), "{why}");
        assert!(passes(&store, "here").await);
        assert_eq!(remaining(&store, "here").await, left);
    }
    old.hand_over("{tidegate}", &new).unwrap();
    eventually(async || take(&store, "elsewhere").await.ok()).await;
}

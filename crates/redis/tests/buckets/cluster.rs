use tidegate_domain::limits::{Buckets as _, PolicyId, Take};
use tidegate_redis::buckets::RedisBuckets;
use tidegate_testkit::services::{Redis, RedisOptions};

use crate::steps::{configure, options, passes, rule};

#[tokio::test]
async fn all_buckets_of_a_request_lie_in_one_slot() {
    let redis = Redis::start_with(RedisOptions { cluster: true, ..RedisOptions::default() }).unwrap();
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

//! An outage of Redis is not a second helping. Buckets hold twenty, and refill one in a quarter of an hour.

use tempfile::TempDir;
use tidegate_testkit::services::Redis;

use super::{ask, deadlines, gateway_with, wait_until_degraded};
use crate::gateway::Gateway;
use crate::policies::policy;

fn falling(redis: &Redis, share: f64) -> (TempDir, Gateway) {
    let falls = format!("failStrategy = \"FALL_BACK\"\nfallBackShare = {share:?}");
    let (url, deadlines) = (redis.url(), deadlines(1000));
    gateway_with(
        &(format!("[limits]\nstore = \"redis\"\n[redis]\nurl = \"{url}\"\n{deadlines}")
            + &policy("opens", "/open", 4, "")
            + &policy("falls", "/back", 20, &falls)),
    )
}

/// How many of so many requests pass.
fn passed(gateway: &Gateway, requests: usize) -> usize {
    (0..requests).filter(|_| ask(gateway, "/back").status == 404).count()
}

/// Each time it comes back it has forgotten everything.
#[test]
fn a_redis_that_flaps_gives_nobody_more_than_the_policy() {
    let mut redis = Redis::start().unwrap();
    let (_dir, gateway) = falling(&redis, 1.0);
    let mut total = passed(&gateway, 12);
    for _ in 0..3 {
        redis.kill().unwrap();
        wait_until_degraded(&gateway, true);
        total += passed(&gateway, 5);
        redis.restart().unwrap();
        wait_until_degraded(&gateway, false);
        total += passed(&gateway, 5);
    }
    assert_eq!(total, 20);
}

#[test]
fn a_redis_that_stalls_gives_nobody_more_than_the_policy() {
    let redis = Redis::start().unwrap();
    let (_dir, gateway) = falling(&redis, 1.0);
    let mut total = passed(&gateway, 12);
    for _ in 0..2 {
        redis.stop().unwrap();
        wait_until_degraded(&gateway, true);
        total += passed(&gateway, 5);
        redis.resume().unwrap();
        wait_until_degraded(&gateway, false);
        total += passed(&gateway, 5);
    }
    assert_eq!(total, 20);
}

#[test]
fn who_was_just_denied_is_denied_without_redis_too() {
    let mut redis = Redis::start().unwrap();
    let (_dir, gateway) = falling(&redis, 0.5);
    assert_eq!(passed(&gateway, 25), 20);
    redis.kill().unwrap();
    wait_until_degraded(&gateway, true);
    assert_eq!(passed(&gateway, 15), 0);
}

/// The bound that the README states, and that it is reached: a gateway can not know of a bucket that it has never asked for.
#[test]
fn a_gateway_that_has_not_seen_a_key_adds_its_share_and_no_more() {
    for emptied in [false, true] {
        let mut redis = Redis::start().unwrap();
        let ((_one_dir, one), (_two_dir, two)) = (falling(&redis, 0.5), falling(&redis, 0.5));
        let before = passed(&one, 12);
        if emptied {
            redis.kill().unwrap()
        } else {
            redis.stop().unwrap()
        }
        for gateway in [&one, &two] {
            wait_until_degraded(gateway, true);
        }
        // Half of the eight that were left, and half of twenty.
        let meanwhile = (passed(&one, 15), passed(&two, 15));
        assert_eq!((before, meanwhile), (12, (4, 10)));
        if emptied {
            redis.restart().unwrap()
        } else {
            redis.resume().unwrap()
        }
        for gateway in [&one, &two] {
            wait_until_degraded(gateway, false);
        }
        let after = passed(&one, 15) + passed(&two, 15);
        // Where Redis has forgotten what it knew, what a gateway remembers may count as what another one has used.
        let most = if emptied { 20 + 10 - (12 + 4 + 10) } else { 0 };
        assert!(after <= most, "{after}, emptied: {emptied}");
    }
}

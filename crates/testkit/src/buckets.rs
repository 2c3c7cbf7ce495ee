//! The oracle of the Buckets port: the cases that every store passes, a naive model that counts, and a driver that
//! compares a store with it.
//!
//! ```text
//! tidegate_testkit::bucket_cases!(MemoryBackend::new());
//! ```
//!
//! expands to one `#[tokio::test]` per case, each on a store of its own.

pub mod cases;
mod drive;
mod harness;
mod model;
mod op;

pub use drive::{Pressure, compare_buckets_with_model};
pub use harness::{BucketsBackend, BucketsHarness, OpenBuckets, run};
pub use model::{ModelBuckets, ModelRule};

use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// One test per case, for a backend given as an expression that makes a fresh one.
#[macro_export]
macro_rules! bucket_cases {
    ($backend:expr) => {
        $crate::bucket_tests! { $backend;
            a_denial_spends_nothing_from_the_others,
            a_shadow_never_denies_and_pays_only_when_the_request_passes,
            a_wall_clock_set_back_or_forward_changes_no_level,
            policies_do_not_share_buckets_and_reset_fills_one,
            a_bucket_refills_by_fractions_of_a_token,
            a_bucket_holds_its_capacity_however_long_it_was_idle,
            a_bucket_that_never_refills_is_full_after_an_idle_hour,
            hammering_keeps_a_bucket_that_never_refills_from_filling,
            the_largest_and_the_slowest_buckets_are_exact,
            keys_may_be_any_text,
            peeking_takes_nothing,
            tokens_are_carried_over_a_reload_as_far_as_they_fit,
            tokens_are_carried_over_two_reloads_that_nobody_came_between,
            a_policy_that_goes_takes_its_buckets_along_unless_the_store_is_shared,
            a_policy_without_a_rule_lacks_nothing,
            parallel_takes_spend_each_token_once,
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! bucket_tests {
    ($backend:expr; $($case:ident),+ $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            $crate::buckets::run($backend, $crate::buckets::cases::$case).await;
        }
    )+};
}

/// The answer of a store that never waits, without a runtime.
pub fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a store in memory does not wait"),
    }
}

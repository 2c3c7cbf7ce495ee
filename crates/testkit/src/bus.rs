//! The oracle of the Bus port: the cases that every bus passes, and a bus in this process that can be told to lie.
//!
//! ```text
//! tidegate_testkit::bus_cases!(KafkaBackend::new());
//! ```
//!
//! expands to one `#[tokio::test]` per case, each with topics or queues of its own.

pub mod cases;
mod drive;
mod harness;
mod in_process;

pub use drive::compare_bus_with_books;
pub use harness::{BusBackend, BusHarness, claim, queue, receive, run};
pub use in_process::{InProcessBackend, InProcessBus, Mischief};

/// One test per case, for a backend given as an expression that makes a fresh one.
#[macro_export]
macro_rules! bus_cases {
    ($backend:expr) => {
        $crate::bus_tests! { $backend;
            what_is_published_is_received_as_it_was,
            records_of_a_recipient_keep_their_order,
            queues_do_not_mix,
            consumers_share_what_there_is,
            what_was_not_done_goes_to_another,
            what_was_done_does_not_come_again,
            a_record_that_nobody_was_there_for_waits,
            the_high_lane_comes_first_and_the_low_one_is_not_forgotten,
            nothing_to_receive_is_no_error,
            a_stranger_s_record_is_skipped_and_done_with,
            a_queue_that_does_not_travel_is_refused,
            a_bus_that_is_there_says_so,
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! bus_tests {
    ($backend:expr; $($case:ident),+ $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            $crate::bus::run($backend, $crate::bus::cases::$case).await;
        }
    )+};
}

//! The oracle of the Buckets port: a naive model that counts, and a driver that compares a store with it.

mod drive;
mod model;
mod op;

pub use drive::{Pressure, compare_buckets_with_model};
pub use model::{ModelBuckets, ModelRule};

use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// The answer of a store that never waits, without a runtime.
pub fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a store in memory does not wait"),
    }
}

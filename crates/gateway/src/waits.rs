//! Waits for what may not be there, as branches of a `select!`.

use futures_util::future::BoxFuture;
use tokio::time::Instant;

/// Without a future this never ends.
pub(crate) async fn now_or_later<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Without a deadline this never ends.
pub(crate) async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

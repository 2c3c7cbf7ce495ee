use std::any::Any;
use std::sync::Arc;

use axum::response::Response;

use crate::Sent;

/// An answer that keeps `guard` until it is written, or its client has gone.
///
/// The answer's body can't keep it: hyper takes all of a body at once and drops it, long before the last byte is written.
pub fn hold_until_sent(mut response: Response, guard: impl Send + Sync + 'static) -> Response {
    response.extensions_mut().insert(Held(Arc::new(guard)));
    response
}

#[derive(Clone)]
struct Held(#[expect(dead_code, reason = "it is only ever dropped")] Arc<dyn Any + Send + Sync>);

/// Gives the guard of an answer to the connection that writes it.
pub(crate) fn hand_over(mut response: Response, connection: &Sent) -> Response {
    match response.extensions_mut().remove::<Held>() {
        Some(held) => connection.tell_of(response, move || drop(held)),
        None => response,
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, HttpBody as _};

    use super::*;

    #[tokio::test]
    async fn a_guard_lives_until_its_answer_is_written() {
        let (guard, connection) = (Arc::new(()), Sent::default());
        let response = hold_until_sent(Response::new(Body::from("hello")), guard.clone());
        let response = hand_over(response, &connection);
        assert_eq!(response.body().size_hint().exact(), Some(5), "its length stays known");
        assert_eq!(axum::body::to_bytes(response.into_body(), 9).await.unwrap(), "hello");
        assert_eq!(Arc::strong_count(&guard), 2, "taken, and not yet written");
        connection.flushed();
        assert_eq!(Arc::strong_count(&guard), 1);
    }

    #[test]
    fn a_guard_goes_with_an_answer_that_is_given_up() {
        let (guard, connection) = (Arc::new(()), Sent::default());
        drop(hand_over(hold_until_sent(Response::new(Body::from("hello")), guard.clone()), &connection));
        assert_eq!(Arc::strong_count(&guard), 1);
    }
}

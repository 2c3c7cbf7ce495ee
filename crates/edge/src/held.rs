use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

/// An answer that keeps `guard` until it is sent, or its client has gone.
pub fn hold_until_sent<G: Send + Unpin + 'static>(response: Response, guard: G) -> Response {
    response.map(|body| Body::new(Held { body, _guard: guard }))
}

struct Held<G> {
    body: Body,
    _guard: G,
}

impl<G: Unpin> HttpBody for Held<G> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn a_guard_lives_as_long_as_its_answer() {
        let guard = Arc::new(());
        let response = hold_until_sent(Response::new(Body::from("hello")), guard.clone());
        assert_eq!(response.body().size_hint().exact(), Some(5), "its length stays known");
        assert_eq!(Arc::strong_count(&guard), 2);
        assert_eq!(axum::body::to_bytes(response.into_body(), 9).await.unwrap(), "hello");
        assert_eq!(Arc::strong_count(&guard), 1);
    }
}

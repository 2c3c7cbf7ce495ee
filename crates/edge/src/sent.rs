use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

/// Tells when a connection has written everything that it was given; in the extensions of each request.
///
/// hyper takes the whole of an answer long before its last byte is written. It flushes the socket only when nothing is left
/// to write, and that is what is listened to here. What is given up with its connection is dropped unsaid. The kernel has the
/// bytes then; whether the client has them is not known.
#[derive(Clone, Default)]
pub struct Sent(Arc<Mutex<Vec<Sending>>>);

type Sending = Box<dyn FnOnce() + Send>;

impl Sent {
    /// Calls `sent` when what the connection has taken so far is written.
    pub fn tell(&self, sent: impl FnOnce() + Send + 'static) {
        self.sending().push(Box::new(sent));
    }

    /// Calls `sent` when the whole of an answer is written.
    pub fn tell_of(&self, response: Response, sent: impl FnOnce() + Send + Unpin + 'static) -> Response {
        response.map(|body| {
            let mut told = Told { body, sent: Some((self.clone(), sent)) };
            told.tell_if_ended();
            Body::new(told)
        })
    }

    pub(crate) fn flushed(&self) {
        let sending = std::mem::take(&mut *self.sending());
        sending.into_iter().for_each(|sent| sent());
    }

    fn sending(&self) -> MutexGuard<'_, Vec<Sending>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Told<F> {
    body: Body,
    sent: Option<(Sent, F)>,
}

impl<F: FnOnce() + Send + 'static> Told<F> {
    fn tell(&mut self) {
        if let Some((connection, sent)) = self.sent.take() {
            connection.tell(sent);
        }
    }

    fn tell_if_ended(&mut self) {
        if self.body.is_end_stream() {
            self.tell();
        }
    }
}

impl<F: FnOnce() + Send + Unpin + 'static> HttpBody for Told<F> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(None) => self.tell(),
            // hyper asks no further when a body says that it has ended.
            Poll::Ready(Some(Ok(_))) => self.tell_if_ended(),
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl fmt::Debug for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sent").field("sending", &self.sending().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn what_was_flushed_is_told_and_what_was_given_up_is_not() {
        let (connection, count) = (Sent::default(), Arc::new(AtomicUsize::new(0)));
        let answer = || {
            let count = count.clone();
            connection.tell_of(Response::new(Body::from("hello")), move || {
                count.fetch_add(1, Ordering::SeqCst);
            })
        };
        drop(answer());
        connection.flushed();
        assert_eq!(answer().body().size_hint().exact(), Some(5), "its length stays known");
        assert_eq!(axum::body::to_bytes(answer().into_body(), 9).await.unwrap(), "hello");
        assert_eq!(count.load(Ordering::SeqCst), 0, "taken, and not yet written");
        connection.flushed();
        connection.flushed();
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }
}

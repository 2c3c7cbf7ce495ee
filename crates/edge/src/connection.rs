use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::Request;
use http::header::{ALLOW, CONNECTION, HeaderValue};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tower::Service;

use crate::deadline::{DeadlineIo, Meter, Watchdog};
use crate::held::hand_over;
use crate::wire::{Faults, Wire};
use crate::{ApiError, Limits, Sent, tally};

/// Who is at the other end of the connection; in the extensions of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddr(pub SocketAddr);

/// Why the head of a request is not valid; in the extensions of the request that stands in for it.
#[derive(Clone, Debug)]
pub(crate) struct InvalidHead(pub ApiError);

/// hyper's own, from which it may read more than one head at a time.
pub(crate) const READ_BUFFER_BYTES: usize = 8 * 1024;

/// Tells all connections to finish what they are doing and close.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    begun: AtomicBool,
    wake: Notify,
}

enum End {
    Closed(hyper::Result<()>),
    Cut(&'static str),
}

/// The response body, which tells the meter when hyper is through with it.
struct Metered {
    body: Body,
    meter: Arc<Meter>,
}

impl Drain {
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Release);
        self.wake.notify_waiters();
    }
}

/// HTTP/1.1 only, without hyper's header timeout: see [`Meter`].
pub(crate) fn protocol(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.header_read_timeout(None);
    // Above what [`Wire`] hands on, so that hyper never has to refuse a head for its size. This also bounds what a
    // response may buffer.
    builder.max_buf_size(limits.head_read_bytes_max() + READ_BUFFER_BYTES);
    builder
}

/// Serves one connection until it ends, is cut by a deadline, or is drained.
pub(crate) async fn run(
    protocol: http1::Builder,
    stream: TcpStream,
    client: SocketAddr,
    app: Router,
    limits: Limits,
    drain: Arc<Drain>,
) {
    let meter = Arc::new(Meter::default());
    let mut watchdog = Watchdog::new(meter.clone(), limits);
    let faults = Arc::<Faults>::default();
    let sent = Sent::default();
    let io = DeadlineIo::new(stream, meter.clone(), sent.clone());
    let io = Wire::new(io, meter.clone(), &limits, faults.clone());
    let (heads, draining) = (meter.clone(), drain.clone());
    let service = service_fn(move |request| {
        let closing = draining.begun.load(Ordering::Acquire);
        answer(&app, &meter, &faults, (client, sent.clone()), request, closing)
    });
    let io = TokioIo::new(io);
    let mut connection = pin!(protocol.serve_connection(io, service));
    let mut drained = pin!(drain.wake.notified());
    let (mut listening, mut closing) = (false, false);

    let end = poll_fn(|cx| {
        if !listening {
            // Once is enough: a spawned task keeps its waker. Polling it each time would take a lock
            // that all connections share.
            listening = drained.as_mut().poll(cx).is_pending();
        }
        // hyper does not know of a head that has come in part, and would close the connection.
        if !closing && !heads.is_in_head() && drain.begun.load(Ordering::Acquire) {
            closing = true;
            connection.as_mut().graceful_shutdown();
        }
        match connection.as_mut().poll(cx) {
            Poll::Ready(outcome) => Poll::Ready(End::Closed(outcome)),
            Poll::Pending => watchdog.poll_cut(cx).map(End::Cut),
        }
    })
    .await;

    match end {
        End::Closed(Ok(())) | End::Cut("linger") => {}
        End::Closed(Err(error)) => tracing::debug!(%client, %error, "connection failed"),
        End::Cut("idle_timeout") => tracing::trace!(%client, "idle connection closed"),
        End::Cut(reason) => {
            tally::refused(reason);
            tracing::debug!(%client, reason, "connection cut");
        }
    }
}

fn answer(
    app: &Router,
    meter: &Arc<Meter>,
    faults: &Faults,
    (client, sent): (SocketAddr, Sent),
    request: Request<Incoming>,
    closing: bool,
) -> impl Future<Output = Result<http::Response<Metered>, Infallible>> + use<> {
    meter.request_started();
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(ClientAddr(client));
    request.extensions_mut().insert(sent.clone());
    let fault = faults.of_next_request();
    let is_stand_in = fault.is_some();
    if let Some(fault) = fault {
        request.extensions_mut().insert(InvalidHead(fault));
    }
    let response = app.clone().call(request);
    let meter = meter.clone();
    async move {
        let mut response = response.await?;
        if is_stand_in {
            // The router's, about the method and the target that stand in for what was sent.
            response.headers_mut().remove(ALLOW);
        }
        if closing {
            // hyper says so itself in answers to requests that came before the drain, but has not been told yet when the
            // rest of a head comes after.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(hand_over(response, &sent).map(|body| Metered { body, meter }))
    }
}

impl http_body::Body for Metered {
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

impl Drop for Metered {
    fn drop(&mut self) {
        self.meter.response_ended();
    }
}

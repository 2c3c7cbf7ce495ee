use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use http_body::Frame;
use tidegate_edge::{Limits, Principals};
use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::client::{Client, PATIENCE};
use crate::server::{Server, limits};

const SHORT: Duration = Duration::from_millis(200);

/// The other limits are longer than the client waits, so what has ended has ended by this one.
fn assert_not_before(elapsed: Duration, expected: Duration) {
    let early = Duration::from_millis(20);
    assert!(elapsed + early >= expected, "{elapsed:?} instead of {expected:?}");
}

#[tokio::test]
async fn a_client_that_says_nothing_is_cut() {
    let server = Server::start(Limits { first_byte_timeout: SHORT, ..limits() }).await;
    let started = Instant::now();
    server.client().await.closed().await;
    assert_not_before(started.elapsed(), SHORT);
}

#[tokio::test]
async fn a_client_that_stops_within_the_head_is_cut() {
    let server = Server::start(Limits { header_timeout: SHORT, ..limits() }).await;
    let mut client = server.client().await;
    let started = Instant::now();
    client.send("GET /ping HTTP/1.1\r\nHo").await;
    client.closed().await;
    assert_not_before(started.elapsed(), SHORT);
}

#[tokio::test]
async fn a_head_that_trickles_is_cut_at_its_deadline() {
    let server = Server::start(Limits { header_timeout: SHORT * 2, ..limits() }).await;
    // Also as the second request of a connection.
    for requests_before in [0, 1] {
        let mut client = server.client().await;
        for _ in 0..requests_before {
            assert_eq!(client.get("/ping", "").await.status, 200);
        }
        let started = Instant::now();
        let head = format!("GET /ping HTTP/1.1\r\nX-Pad: {}", "x".repeat(100_000));
        for byte in head.as_bytes() {
            if client.stream.write_all(&[*byte]).await.is_err() {
                break;
            }
            sleep(Duration::from_millis(10)).await;
            assert!(started.elapsed() < PATIENCE, "still open");
        }
        assert_not_before(started.elapsed(), SHORT * 2);
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_its_own_time() {
    let server = Server::start(Limits { idle_timeout: SHORT, ..limits() }).await;
    let begun = Instant::now();
    let (mut client, last_asked) = loop {
        if let Some(asked) = asked_with_pauses(&server).await {
            break asked;
        }
        assert!(begun.elapsed() < PATIENCE, "this machine stands still more often than not");
    };
    client.closed().await;
    assert_not_before(last_asked.elapsed(), SHORT);
}

/// Each request starts the wait anew, so pauses that are together longer than it do no harm. The connection, and when it
/// was last asked; `None` if it was closed after a pause that this machine made too long.
async fn asked_with_pauses(server: &Server) -> Option<(Client, Instant)> {
    let mut client = server.client().await;
    let mut last_asked = Instant::now();
    assert_eq!(client.get("/ping", "").await.status, 200);
    for _ in 0..3 {
        sleep(SHORT / 2).await;
        let asked = Instant::now();
        let Some(answer) = client.try_ask("GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n").await else {
            // The server's wait began later than that.
            assert!(last_asked.elapsed() >= SHORT, "closed after {:?}", last_asked.elapsed());
            return None;
        };
        assert_eq!(answer.status, 200);
        last_asked = asked;
    }
    Some((client, last_asked))
}

#[tokio::test]
async fn no_deadline_of_the_client_cuts_a_slow_handler() {
    let short = Duration::from_millis(50);
    let tight = Limits {
        first_byte_timeout: short,
        header_timeout: short,
        body_timeout: short,
        idle_timeout: short,
        write_timeout: short,
        ..limits()
    };
    let server = Server::start(tight).await;
    assert_eq!(server.client().await.get("/slow", "").await.body, "done");
}

#[tokio::test]
async fn a_body_that_stops_or_trickles_is_answered_408_and_cut() {
    let server = Server::start(Limits { body_timeout: SHORT, ..limits() }).await;
    for trickle in [false, true] {
        let mut client = server.client().await;
        let started = Instant::now();
        client.send("POST /raw HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\nx").await;
        while trickle && started.elapsed() < SHORT {
            client.send("x").await;
            sleep(Duration::from_millis(20)).await;
        }
        let answer = client.answer().await;
        assert_not_before(started.elapsed(), SHORT);
        assert_eq!((answer.status, answer.code().as_str()), (408, "body_timeout"));
        client.closed().await;
    }
}

/// A response without end, which tells when the server gives up on it.
struct Endless(Option<oneshot::Sender<()>>);

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 16 * 1024])))))
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        let _ = self.0.take().unwrap().send(());
    }
}

fn endless() -> (Router, oneshot::Receiver<()>) {
    let (dropped, given_up) = oneshot::channel();
    let body = Mutex::new(Some(Endless(Some(dropped))));
    let body = std::sync::Arc::new(body);
    let route = get(async move || Body::new(body.lock().unwrap().take().unwrap()));
    (Router::new().route("/endless", route), given_up)
}

#[tokio::test]
async fn a_client_that_does_not_read_its_response_is_cut() {
    let (routes, given_up) = endless();
    let server = Server::with(Limits { write_timeout: SHORT, ..limits() }, routes, Principals::none()).await;
    let mut client = server.client().await;
    let started = Instant::now();
    client.send("GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    timeout(PATIENCE, given_up).await.expect("the server writes for ever").unwrap();
    assert!(started.elapsed() >= SHORT);
}

#[tokio::test]
async fn a_client_that_reads_slowly_is_not_cut() {
    let begun = Instant::now();
    while let Err(pause_max) = read_slowly().await {
        assert!(pause_max >= SHORT / 2, "given up, and the longest pause was {pause_max:?}");
        assert!(begun.elapsed() < PATIENCE, "this machine stands still more often than not");
    }
}

/// Reads for much longer than a write may take, a little at a time. The longest pause, if the server has given up.
async fn read_slowly() -> Result<(), Duration> {
    let (routes, mut given_up) = endless();
    let server = Server::with(Limits { write_timeout: SHORT, ..limits() }, routes, Principals::none()).await;
    let mut client = server.client().await;
    client.send("GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    let started = Instant::now();
    let (mut last_read, mut pause_max) = (started, Duration::ZERO);
    let mut buffer = vec![0; 4 * 1024 * 1024];
    while started.elapsed() < SHORT * 5 {
        client.stream.readable().await.unwrap();
        let _ = client.stream.try_read(&mut buffer);
        pause_max = pause_max.max(last_read.elapsed());
        last_read = Instant::now();
        sleep(Duration::from_millis(10)).await;
    }
    // Still open: nothing has been given up.
    given_up.try_recv().map_or(Ok(()), |()| Err(pause_max))
}

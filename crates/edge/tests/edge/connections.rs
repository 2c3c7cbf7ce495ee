use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use tidegate_edge::{Limits, Principals};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use crate::client::{Client, PATIENCE};
use crate::server::{Server, limits};

/// A route that says when it has been asked, and answers when it is let go.
#[derive(Default)]
struct Held {
    asked: Arc<Notify>,
    free: Arc<Notify>,
}

impl Held {
    fn route(&self) -> Router {
        let (asked, free) = (self.asked.clone(), self.free.clone());
        let answer = async move || {
            asked.notify_one();
            free.notified().await;
            "done"
        };
        Router::new().route("/held", get(answer))
    }

    async fn came(&self) {
        timeout(PATIENCE, self.asked.notified()).await.expect("nobody asked");
    }

    fn let_go(&self) {
        self.free.notify_one();
    }
}

#[tokio::test]
async fn a_connection_beyond_the_cap_is_answered_503_at_once_and_a_freed_place_is_taken() {
    let server = Server::start(Limits { connections_max: 2, ..limits() }).await;
    let mut first = server.client().await;
    let mut second = server.client().await;
    for client in [&mut first, &mut second] {
        assert_eq!(client.get("/ping", "").await.status, 200);
    }
    for _ in 0..100 {
        let mut third = server.client().await;
        let answer = third.get("/ping", "").await;
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
        answer.assert_error(503, "overloaded", "");
        third.closed().await;
    }
    // Also to a client that is still sending when it comes, which a reset would rob of the answer.
    let mut third = server.client().await;
    third.send("GET /ping HTTP/1.1\r\n").await;
    timeout(PATIENCE, third.stream.readable()).await.expect("no answer at once").unwrap();
    for piece in ["Host: localhost\r\n", "\r\n"] {
        third.send(piece).await;
        yield_now().await;
    }
    assert_eq!(third.answer().await.status, 503);
    assert_eq!(first.get("/ping", "").await.status, 200);

    drop(second);
    let started = Instant::now();
    while server.client().await.get("/ping", "").await.status != 200 {
        assert!(started.elapsed() < PATIENCE, "the place was not freed");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn one_address_has_its_share_of_the_connections_and_no_more() {
    let limits = Limits { connections_max: 4, connections_per_client_percent: 50, ..limits() };
    let server = Server::start(limits).await;
    let mut held = Vec::new();
    for from in [[127, 0, 0, 1], [127, 0, 0, 1], [127, 0, 0, 2]] {
        let mut client = Client::connect_from(from, server.addr).await;
        assert_eq!(client.get("/ping", "").await.status, 200, "{from:?}");
        held.push(client);
    }
    let mut third = server.client().await;
    let refused = third.get("/ping", "").await;
    refused.assert_error(429, "too_many_connections", "");
    assert_eq!(refused.header("retry-after"), Some("1"));
    third.closed().await;

    drop(held.remove(0));
    let started = Instant::now();
    while server.client().await.get("/ping", "").await.status != 200 {
        assert!(started.elapsed() < PATIENCE, "the share was not given back");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_drain_finishes_what_is_under_way_and_refuses_what_is_new() {
    let held = Held::default();
    let mut server = Server::with(limits(), held.route(), Principals::none()).await;
    let mut idle = server.client().await;
    assert_eq!(idle.get("/ping", "").await.status, 200);
    let mut fresh = server.client().await;
    let mut busy = server.client().await;
    busy.send("GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    held.came().await;

    server.stop();
    idle.closed().await;
    fresh.closed().await;
    assert!(TcpStream::connect(server.addr).await.is_err());

    held.let_go();
    let answer = busy.answer().await;
    assert_eq!((answer.body.as_str(), answer.header("connection")), ("done", Some("close")));
    busy.closed().await;
    drop((idle, fresh, busy));
    timeout(PATIENCE, &mut server.ended).await.expect("serve returns once drained").unwrap();
}

#[tokio::test]
async fn a_request_that_arrives_in_pieces_during_the_drain_is_answered() {
    let mut server = Server::start(limits()).await;
    let mut client = server.client().await;
    client.send("GET /ping HTTP/1.1\r\n").await;
    // All of this is one thread, which turns to connections in the order in which they have something to say: when a later
    // one has its answer, the piece has been read.
    let mut later = server.client().await;
    assert_eq!(later.get("/ping", "").await.status, 200);
    server.stop();
    later.closed().await;
    let answer = client.ask("Host: localhost\r\n\r\n").await;
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
}

#[tokio::test]
async fn a_drain_cuts_what_does_not_finish_in_time() {
    let limits = Limits { drain_timeout: Duration::from_millis(200), ..limits() };
    let held = Held::default();
    let mut server = Server::with(limits, held.route(), Principals::none()).await;
    let mut client = server.client().await;
    client.send("GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    held.came().await;
    let started = Instant::now();
    server.stop();
    timeout(PATIENCE, &mut server.ended).await.expect("serve returns after the drain timeout").unwrap();
    assert!(started.elapsed() >= Duration::from_millis(200));
    client.closed().await;
}

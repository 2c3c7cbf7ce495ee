use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::routing::post;
use tidegate_edge::{Limits, Principals, read_body};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::client::{Client, PATIENCE};
use crate::server::{Server, limits};

/// More than a connection's read buffer holds, so that it comes in several pieces.
const BODY_BYTES: usize = 100_000;

#[tokio::test]
async fn bodies_that_are_held_have_a_bound_in_all_and_for_each_address() {
    let limits = Limits {
        body_bytes_max: BODY_BYTES,
        bodies_bytes_max: 5 * BODY_BYTES / 2,
        bodies_per_client_percent: 50,
        ..limits()
    };
    let (asked, free) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (on_asked, until_free) = (asked.clone(), free.clone());
    let held = async move |request: Request| {
        let body = read_body(request, &limits).await?;
        on_asked.add_permits(1);
        until_free.acquire().await.unwrap().forget();
        Ok::<_, tidegate_edge::ApiError>(body.len().to_string())
    };
    let server = Server::with(limits, Router::new().route("/held", post(held)), Principals::none()).await;
    let body = "x".repeat(BODY_BYTES);
    let request =
        format!("POST /held HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY_BYTES}\r\n\r\n{body}");
    let came = async || timeout(PATIENCE, asked.acquire()).await.expect("no body came").unwrap().forget();

    let mut first = Client::connect_from([127, 0, 0, 1], server.addr).await;
    first.send(&request).await;
    came().await;
    let same = Client::connect_from([127, 0, 0, 1], server.addr).await.ask(&request).await;
    assert_eq!(same.header("retry-after"), Some("1"));
    same.assert_error(503, "bodies_full", "/held");

    let mut second = Client::connect_from([127, 0, 0, 2], server.addr).await;
    second.send(&request).await;
    came().await;
    let third = Client::connect_from([127, 0, 0, 3], server.addr).await.ask(&request).await;
    third.assert_error(503, "bodies_full", "/held");
    // A short one costs no more than its connection.
    let short = Client::connect_from([127, 0, 0, 3], server.addr).await.post("/raw", "", "short").await;
    assert_eq!(short.body, "short");

    free.add_permits(2);
    for client in [&mut first, &mut second] {
        assert_eq!(client.answer().await.body, BODY_BYTES.to_string());
    }
    free.add_permits(1);
    assert_eq!(first.ask(&request).await.body, BODY_BYTES.to_string(), "what was held is given back");
}

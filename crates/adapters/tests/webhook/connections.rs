use std::sync::Arc;
use std::time::Duration;

use tidegate_adapters::channels::webhook::WebhookOptions;
use tidegate_domain::Delivery;
use tokio::task::JoinSet;

use crate::sink::{Reply, Sink, channel, claim, deliver, later};

fn answer(status: &str, bytes: usize) -> Reply {
    let text = "y".repeat(bytes);
    Reply::raw(&format!("HTTP/1.1 {status}\r\ncontent-length: {bytes}\r\n\r\n{text}"))
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let sink = Sink::start(|n| answer(["200 OK", "503 No", "404 No"][n % 3], n * 100)).await;
    let channel = channel(sink.options());
    for _ in 0..30 {
        deliver(&channel, &claim()).await;
    }
    assert_eq!((sink.connections(), sink.requests().len()), (1, 30));
}

#[tokio::test]
async fn attempts_at_the_same_time_have_a_connection_each() {
    let sink = Sink::always(Reply::Stall).await;
    let options = WebhookOptions { total_timeout: Duration::from_secs(2), ..sink.options() };
    let channel = Arc::new(channel(options));
    let mut attempts = JoinSet::new();
    for _ in 0..20 {
        let channel = channel.clone();
        attempts.spawn(async move { deliver(&channel, &claim()).await });
    }
    for delivery in attempts.join_all().await {
        assert_eq!(later(delivery), "no answer within 2000 ms");
    }
    assert_eq!(sink.requests().len(), 20);
}

#[tokio::test]
async fn an_answer_beyond_the_bound_is_cut_and_loses_its_connection() {
    let sink = Sink::start(|n| answer(["500 No", "200 OK", "200 OK"][n], 3_000_000)).await;
    let channel = channel(sink.options());
    let reason = later(deliver(&channel, &claim()).await);
    assert_eq!(reason.len(), "500 Internal Server Error: ".len() + 64 * 1024);
    assert_eq!(deliver(&channel, &claim()).await, Delivery::Delivered);
    assert_eq!(deliver(&channel, &claim()).await, Delivery::Delivered);
    assert_eq!(sink.connections(), 3);
}

#[tokio::test]
async fn a_connection_that_its_provider_closes_is_replaced() {
    let closing = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let sink = Sink::start(move |n| if n == 0 { Reply::raw(closing) } else { answer("200 OK", 0) }).await;
    let channel = channel(sink.options());
    assert_eq!(deliver(&channel, &claim()).await, Delivery::Delivered);
    assert_eq!(deliver(&channel, &claim()).await, Delivery::Delivered);
    assert_eq!(sink.connections(), 2);
}

#[tokio::test]
async fn a_yes_cut_short_is_a_yes() {
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\nconnection: close\r\n\r\nhalf";
    let sink = Sink::start(move |n| if n == 0 { Reply::raw(half) } else { Reply::Hangup }).await;
    assert_eq!(sink.deliver(&claim()).await, Delivery::Delivered);
}

#[tokio::test]
async fn nobody_listening_is_tried_later() {
    // Nobody's, unlike a port that was free a moment ago.
    let options = WebhookOptions {
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        ..WebhookOptions::new("http://127.0.0.1:1/geheim".to_owned())
    };
    let reason = later(deliver(&channel(options), &claim()).await);
    assert!(reason.contains("refused") && !reason.contains("geheim"), "{reason}");
}

#[tokio::test]
async fn a_connection_that_is_never_made_costs_the_connect_timeout() {
    // In the middle of a TLS handshake, the sink waits for a request.
    let sink = Sink::always(Reply::Stall).await;
    let options = WebhookOptions {
        url: format!("https://{}/", sink.address),
        connect_timeout: Duration::from_millis(50),
        total_timeout: Duration::from_secs(60),
        ca_pem: Some(crate::tls::authority().pem.into_bytes()),
        ..sink.options()
    };
    let reason = later(deliver(&channel(options), &claim()).await);
    assert_eq!(reason, "no connection within 50 ms");
}

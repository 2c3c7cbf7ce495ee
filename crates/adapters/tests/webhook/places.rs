use tidegate_adapters::channels::webhook::{WebhookChannel, WebhookError, WebhookOptions};
use tidegate_domain::Delivery;
use tidegate_testkit::TestClock;

use crate::sink::{Reply, Sink, channel, claim, deliver, later};

#[tokio::test]
async fn a_literal_inner_address_is_refused_before_anything_starts() {
    let sink = Sink::always(Reply::status("200 OK")).await;
    let port = sink.address.port();
    for host in
        ["127.0.0.1", "127.1.2.3", "[::1]", "[::ffff:127.0.0.1]", "10.0.0.1", "169.254.169.254", "0.0.0.0"]
    {
        let options = WebhookOptions::new(format!("http://{host}:{port}/"));
        let error = WebhookChannel::new(options, std::sync::Arc::new(TestClock::new())).unwrap_err();
        assert!(matches!(error, WebhookError::Forbidden(_)), "{host}: {error}");
    }
    assert_eq!(sink.connections(), 0);
}

#[tokio::test]
async fn a_name_that_leads_inside_is_not_dialled() {
    let sink = Sink::always(Reply::status("200 OK")).await;
    for name in ["localhost", "LOCALHOST"] {
        let options = WebhookOptions::new(format!("http://{name}:{}/", sink.address.port()));
        let reason = later(deliver(&channel(options), &claim()).await);
        assert!(reason.contains("not on the public internet"), "{reason}");
    }
    assert_eq!(sink.connections(), 0);
}

#[tokio::test]
async fn an_allowed_network_is_dialled_by_name_too() {
    let sink = Sink::always(Reply::status("200 OK")).await;
    // Wherever else the name leads (::1 on most machines), only what the list holds is dialled.
    let url = format!("http://localhost:{}/", sink.address.port());
    let options = WebhookOptions { url, ..sink.options() };
    assert_eq!(deliver(&channel(options), &claim()).await, Delivery::Delivered);
    assert_eq!(sink.requests()[0].headers["host"], format!("localhost:{}", sink.address.port()));
}

#[tokio::test]
async fn an_allowed_network_opens_no_other() {
    let sink = Sink::always(Reply::status("200 OK")).await;
    let options = WebhookOptions {
        allow: vec!["10.0.0.0/8".parse().unwrap(), "::/0".parse().unwrap()],
        ..WebhookOptions::new(format!("http://127.0.0.1:{}/", sink.address.port()))
    };
    let error = WebhookChannel::new(options, std::sync::Arc::new(TestClock::new())).unwrap_err();
    assert_eq!(error, WebhookError::Forbidden("127.0.0.1".parse().unwrap()));
}

#[tokio::test]
async fn a_name_that_nobody_knows_is_tried_later() {
    // .invalid is reserved for this.
    let options = WebhookOptions::new("http://tidegate.invalid/");
    let reason = later(deliver(&channel(options), &claim()).await);
    assert!(reason.contains("tidegate.invalid") || reason.contains("no connection within"), "{reason}");
}

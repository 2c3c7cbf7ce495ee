use tidegate_adapters::channels::webhook::WebhookOptions;
use tidegate_domain::{Claim, Delivery};
use tidegate_testkit::TestClock;

use crate::sink::{Reply, Sink, channel, claim, deliver, later};

async fn answered(status: &str) -> Delivery {
    Sink::always(Reply::status(status)).await.deliver(&claim()).await
}

#[tokio::test]
async fn every_2xx_is_delivered() {
    for status in ["200 OK", "201 Created", "202 Accepted", "299 Whatever"] {
        assert_eq!(answered(status).await, Delivery::Delivered, "{status}");
    }
    let sink = Sink::always(Reply::raw("HTTP/1.1 204 No Content\r\n\r\n")).await;
    assert_eq!(sink.deliver(&claim()).await, Delivery::Delivered);
}

#[tokio::test]
async fn a_message_to_be_acked_is_accepted() {
    let sink = Sink::always(Reply::status("200 OK")).await;
    assert_eq!(sink.deliver(&Claim { ack_required: true, ..claim() }).await, Delivery::Accepted);
}

#[tokio::test]
async fn permanent_statuses_are_refused_and_the_others_tried_later() {
    for status in [400, 401, 403, 404, 405, 410, 413, 414, 415, 422] {
        let delivery = answered(&format!("{status} No")).await;
        assert!(
            matches!(&delivery, Delivery::Refused { reason } if reason.ends_with(": hm")),
            "{delivery:?}"
        );
    }
    for status in [402, 406, 408, 409, 421, 425, 429, 451, 499, 500, 501, 502, 503, 504, 599] {
        let delivery = answered(&format!("{status} No")).await;
        assert!(matches!(&delivery, Delivery::TryLater { after_ms: None, .. }), "{status}: {delivery:?}");
        assert!(later(delivery).starts_with(&status.to_string()));
    }
}

#[tokio::test]
async fn which_statuses_are_permanent_is_a_setting() {
    let sink = Sink::start(|n| Reply::status(["503 No", "404 No", "302 No"][n])).await;
    let options = WebhookOptions { permanent_statuses: vec![302, 503], ..sink.options() };
    let channel = channel(options);
    assert!(matches!(deliver(&channel, &claim()).await, Delivery::Refused { .. }));
    assert!(matches!(deliver(&channel, &claim()).await, Delivery::TryLater { .. }));
    assert!(matches!(deliver(&channel, &claim()).await, Delivery::Refused { .. }));
}

#[tokio::test]
async fn retry_after_is_honoured_in_both_forms() {
    // The clock stands at 2025-11-15T22:00:00Z.
    assert_eq!(TestClock::START.millis(), 1_763_244_000_000);
    for (status, value, after_ms) in [
        ("429 Too Many Requests", "7", Some(7_000)),
        ("503 Service Unavailable", "Sat, 15 Nov 2025 22:02:00 GMT", Some(120_000)),
        ("503 Service Unavailable", "in a while", None),
    ] {
        let text = format!("HTTP/1.1 {status}\r\nretry-after: {value}\r\ncontent-length: 0\r\n\r\n");
        let sink = Sink::always(Reply::raw(&text)).await;
        let reason = status.to_owned();
        assert_eq!(sink.deliver(&claim()).await, Delivery::TryLater { after_ms, reason });
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let trap = Sink::always(Reply::status("200 OK")).await;
    for status in ["301 Moved Permanently", "302 Found", "303 See Other", "307 Temporary Redirect"] {
        let location = format!("http://{}/", trap.address);
        let text = format!("HTTP/1.1 {status}\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        let sink = Sink::always(Reply::raw(&text)).await;
        let reason = later(sink.deliver(&claim()).await);
        assert_eq!(reason, format!("{status}: redirects are not followed, not to {location}"));
    }
    assert_eq!(trap.connections(), 0);
}

#[tokio::test]
async fn a_provider_that_never_answers_costs_the_total_timeout() {
    let sink = Sink::always(Reply::Stall).await;
    assert_eq!(later(sink.deliver_soon(&claim()).await), "no answer within 1000 ms");
}

#[tokio::test]
async fn a_failure_that_drips_is_kept_as_far_as_it_came() {
    let sink = Sink::always(Reply::Drip("HTTP/1.1 500 No\r\ncontent-length: 1000000\r\n\r\n")).await;
    let reason = later(sink.deliver_soon(&claim()).await);
    assert!(reason.starts_with("500 Internal Server Error: xx"), "{reason}");
    assert!(reason.len() < 200, "{reason}");
}

#[tokio::test]
async fn a_yes_that_drips_is_a_yes() {
    let sink = Sink::always(Reply::Drip("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")).await;
    assert_eq!(sink.deliver_soon(&claim()).await, Delivery::Delivered);
    // A head that drips is no answer.
    let sink = Sink::always(Reply::Drip("HTTP/1.1 200 OK\r\nx: ")).await;
    assert_eq!(later(sink.deliver_soon(&claim()).await), "no answer within 1000 ms");
}

#[tokio::test]
async fn garbage_is_tried_later() {
    for garbage in [
        "\r\n\r\n\r\n",
        "SSH-2.0-OpenSSH_9.6\r\n",
        "HTTP/1.1 20x OK\r\n\r\n",
        "HTTP/9.9 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    ] {
        let sink = Sink::start(|_| Reply::Hangup).await;
        assert!(!later(sink.deliver(&claim()).await).is_empty());
        // Some of it might yet become an answer.
        let sink = Sink::always(Reply::raw(garbage)).await;
        let reason = later(sink.deliver_soon(&claim()).await);
        assert!(!reason.contains("geheim"), "{reason}");
    }
    let endless = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(200_000));
    let sink = Sink::always(Reply::raw(&endless)).await;
    assert!(!later(sink.deliver(&claim()).await).is_empty());
}

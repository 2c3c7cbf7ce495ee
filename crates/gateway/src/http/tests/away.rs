//! What callers see while the bus is away.

use tidegate_testkit::bus::{InProcessBus, Mischief};

use super::*;
use crate::config::tests::load;

async fn site(when_down: &str) -> (Site, InProcessBus) {
    let text = format!("[bus]\nkind = \"kafka\"\nwhen_down = \"{when_down}\"\n");
    let settings = load(&text).unwrap().settings;
    let bus = InProcessBus::new([QueueName::new("sms").unwrap()]);
    let site = Site::with(FaultyLedger::new(Setup::default()), settings, Some(Arc::new(bus.clone()))).await;
    (site, bus)
}

fn away() -> Mischief {
    Mischief { away: true, ..Mischief::default() }
}

fn order() -> Value {
    json!({"recipient": "bob", "body": "hi"})
}

#[tokio::test]
async fn messages_are_accepted_and_the_answer_says_degraded() {
    let (site, bus) = site("accept").await;
    let (status, body, response) = site.post("/api/send", message()).await;
    assert_eq!((status, body.get("degraded")), (200, None));
    assert!(!response.headers().contains_key("tidegate-degraded"));
    bus.set_mischief(away());
    for (path, body, wanted) in [
        ("/api/send", message(), 200),
        ("/api/v1/messages", order(), 202),
        ("/queue/push?consumerGroup=sms", json!("hi"), 200),
    ] {
        let (status, body, response) = site.post(path, body).await;
        assert_eq!(status, wanted, "{body}");
        assert_eq!(response.headers()["tidegate-degraded"], "true", "{path}");
        assert!(path.starts_with("/queue") || body["degraded"] == true, "{path}: {body}");
    }
    let (_, body, _) = site.post("/api/v1/messages/batch", json!([order()])).await;
    assert_eq!(body["results"][0]["degraded"], true, "{body}");
    assert_eq!(site.ledger.counts().await.unwrap().pending, 5);
    let (_, body, response) = site.post("/queue/push?consumerGroup=jobs", json!("hi")).await;
    assert!(!response.headers().contains_key("tidegate-degraded"), "it does not travel: {body}");
}

#[tokio::test]
async fn or_they_are_refused_and_nothing_is_counted() {
    let (site, bus) = site("reject").await;
    bus.set_mischief(away());
    for (path, body) in [
        ("/api/send", message()),
        ("/api/v1/messages", order()),
        ("/api/v1/messages/batch", json!([order()])),
        ("/queue/push?consumerGroup=sms", json!("hi")),
    ] {
        let (status, body, response) = site.post(path, body).await;
        assert_eq!((status, &body["code"]), (503, &json!("bus_unavailable")), "{path}: {body}");
        assert_eq!(response.headers()["retry-after"], "1");
    }
    assert_eq!(site.post("/queue/push?consumerGroup=jobs", json!("hi")).await.0, 200, "it does not travel");
    assert_eq!(site.get("/api/config/alice").await.1["currentCount"], 0);
    assert_eq!(site.ledger.counts().await.unwrap().admitted, 1);
    bus.set_mischief(Mischief::default());
    assert_eq!(site.post("/api/send", message()).await.1["remaining"], 9);
}

#[tokio::test]
async fn readiness_and_metrics_tell() {
    for (when_down, wanted) in [("accept", "ready"), ("reject", "not_ready")] {
        let (site, bus) = site(when_down).await;
        site.gateway.relay.assume_running();
        site.gateway.sender.assume_running();
        let (_, body, _) = site.get("/health/ready").await;
        assert_eq!((&body["status"], &body["bus"]["status"]), (&json!("ready"), &json!("ready")), "{body}");
        bus.set_mischief(away());
        let (_, body, _) = site.get("/health/ready").await;
        assert_eq!((&body["status"], &body["bus"]["status"]), (&json!(wanted), &json!("away")), "{body}");
        let request = Request::get("/metrics").header("host", "localhost").body(Body::empty()).unwrap();
        let response = site.app.clone().oneshot(request).await.unwrap();
        let text = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        let text = String::from_utf8(text.to_vec()).unwrap();
        assert!(text.contains("tidegate_bus_up{bus=\"in-process\"} 0\n"), "{text}");
    }
}

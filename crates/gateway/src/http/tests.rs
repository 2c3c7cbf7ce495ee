use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_domain::{Durability, Health, LedgerError};
use tidegate_edge::{Edge, Principals};
use tidegate_testkit::Setup;
use tower::ServiceExt as _;

mod away;

use super::*;
use crate::config::{Loaded, Sources};
use crate::faulty::FaultyLedger;
use crate::telemetry;

/// The routes behind the edge, on a ledger that fails to order; no socket, no sender.
struct Site {
    ledger: Arc<FaultyLedger>,
    gateway: Arc<Gateway>,
    app: Router,
}

impl Site {
    async fn new(intake_max: usize) -> Self {
        Self::on(FaultyLedger::new(Setup::default()), intake_max).await
    }

    async fn on(ledger: FaultyLedger, intake_max: usize) -> Self {
        let mut settings = Loaded::from_sources(&Sources::default()).unwrap().settings;
        settings.intake_max = intake_max;
        Self::with(ledger, settings, None).await
    }

    async fn with(ledger: FaultyLedger, settings: Settings, bus: Option<Arc<dyn Bus>>) -> Self {
        let ledger = Arc::new(ledger);
        let limits = settings.limits;
        let clock = Setup::default().clock;
        let queue = QueueName::new("sms").unwrap();
        let metrics = telemetry::metrics();
        let policies =
            crate::wiring::policies(&settings, clock.clone(), Box::new(|| Ok(Vec::new()))).await.unwrap();
        let gateway = Gateway::new(ledger.clone(), clock.clone(), &settings, queue, policies, metrics);
        let gateway = Arc::new(gateway.with_bus(bus, &settings));
        let app = Edge::new(limits, Principals::none(), clock, true).wrap(routes(gateway.clone()));
        let site = Self { ledger, gateway, app };
        let quota = json!({"userId": "alice", "rateLimit": 10, "timeWindow": 1});
        assert_eq!(site.post("/api/config", quota).await.0, 200);
        site
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value, Response) {
        let request = Request::post(path)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .unwrap();
        self.ask(request).await
    }

    async fn get(&self, path: &str) -> (u16, Value, Response) {
        self.ask(Request::get(path).header("host", "localhost").body(Body::empty()).unwrap()).await
    }

    async fn ask(&self, request: Request) -> (u16, Value, Response) {
        let mut response = self.app.clone().oneshot(request).await.unwrap();
        let body = std::mem::take(response.body_mut());
        let bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        (response.status().as_u16(), serde_json::from_slice(&bytes).unwrap_or_default(), response)
    }
}

fn message() -> Value {
    json!({"userId": "alice", "message": "hi"})
}

#[tokio::test]
async fn each_failure_of_the_ledger_says_what_a_caller_can_do() {
    let site = Site::new(8).await;
    let text = || "/secret/path".to_owned();
    let faults = [
        (LedgerError::Overloaded, 503, "overloaded", true),
        (LedgerError::Unavailable(text()), 503, "unavailable", true),
        (LedgerError::NoSpace(text()), 507, "no_space", true),
        (LedgerError::OutcomeUnknown(text()), 503, "outcome_unknown", true),
        (LedgerError::Corrupt(text()), 500, "internal", false),
        (LedgerError::Defect(text()), 500, "internal", false),
    ];
    for (fault, status, code, retry) in faults {
        let slot = json!({"eventId": "e", "requestedTime": "2025-06-01T12:00:00Z"});
        for (path, body) in [
            ("/api/send", message()),
            ("/api/config", json!({"userId": 1, "rateLimit": 1, "timeWindow": 1})),
            ("/api/v1/slots", slot.clone()),
            ("/api/v1/slots/batch", json!({ "events": [slot] })),
            ("/admin/rate-limit/config", json!({"maxPerWindow": 1, "windowSize": "PT4S"})),
        ] {
            site.ledger.fail_with([fault.clone()]);
            let (given, body, response) = site.post(path, body).await;
            assert_eq!((given, body["code"].as_str()), (status, Some(code)), "{body}");
            assert_eq!(response.headers().contains_key("retry-after"), retry, "{body}");
            assert!(!body.to_string().contains("secret"), "causes stay inside: {body}");
        }
    }
    assert_eq!(site.post("/api/send", message()).await.1["remaining"], 9, "failures charge nothing");
}

#[tokio::test]
async fn a_full_intake_sheds_before_the_body_is_read() {
    let site = Site::new(1).await;
    site.ledger.gate.forget_permits(1_000);
    let first = tokio::spawn(
        site.app.clone().oneshot(
            Request::post("/api/send")
                .header("host", "localhost")
                .header("content-type", "application/json")
                .body(Body::from(message().to_string()))
                .unwrap(),
        ),
    );
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(site.gateway.intake.available_permits(), 0);
    // A body that never comes: who waits for it hangs.
    let endless = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
    let request = Request::post("/api/send")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(endless)
        .unwrap();
    let (status, body, response) = site.ask(request).await;
    assert_eq!((status, &body["code"]), (503, &json!("overloaded")));
    assert_eq!(response.headers()["retry-after"], "1");
    site.ledger.gate.add_permits(1_000);
    assert_eq!(first.await.unwrap().unwrap().status(), 200);
    assert_eq!(site.post("/api/send", message()).await.0, 200);
}

#[tokio::test]
async fn a_ledger_that_takes_no_writes_is_said_at_once_and_reads_go_on() {
    let site = Site::new(8).await;
    site.ledger.set_health(Health::ReadOnly("disk full".to_owned()));
    let (status, body, response) = site.post("/api/send", message()).await;
    assert_eq!((status, &body["code"]), (507, &json!("no_space")));
    assert!(response.headers().contains_key("retry-after"));
    assert_eq!(site.get("/api/config/alice").await.0, 200);
    let (status, body, _) = site.get("/health/ready").await;
    assert_eq!((status, &body["ledger"]), (503, &json!("read_only")));
    site.ledger.set_health(Health::Ready);
    assert_eq!(site.post("/api/send", message()).await.0, 200);
}

#[tokio::test]
async fn a_full_ledger_and_a_draining_gateway_say_so() {
    let site = Site::on(FaultyLedger::new(Setup { pending_max: 1, ..Setup::default() }), 8).await;
    assert_eq!(site.post("/api/send", message()).await.0, 200);
    let (status, body, response) = site.post("/api/send", message()).await;
    assert_eq!((status, &body["code"]), (429, &json!("ledger_full")));
    assert!(response.headers().contains_key("retry-after"));
    let (_, body, _) = site.get("/health/ready").await;
    assert_eq!((&body["intake"], &body["fullQueues"]), (&json!("full"), &json!([])));
    let urgent = json!({"recipient": "ann", "body": "hello", "priority": "high"});
    assert_eq!(site.post("/api/v1/messages", urgent).await.0, 202);
    site.gateway.drain();
    let (status, body, _) = site.get("/health/ready").await;
    assert_eq!((status, &body["draining"]), (503, &json!(true)));
    assert_eq!(site.get("/health/live").await.0, 200);
}

#[tokio::test]
async fn only_a_weaker_promise_is_named() {
    let site = Site::new(8).await;
    let (_, body, response) = site.post("/api/send", message()).await;
    assert!(body.get("durability").is_none() && !response.headers().contains_key("tidegate-durability"));
    let mut ledger = FaultyLedger::new(Setup::default());
    ledger.durability = Durability::OsBuffer;
    let site = Site::on(ledger, 8).await;
    let (_, body, response) = site.post("/api/send", message()).await;
    assert_eq!(body["durability"], "os-buffer");
    assert_eq!(response.headers()["tidegate-durability"], "os-buffer");
}

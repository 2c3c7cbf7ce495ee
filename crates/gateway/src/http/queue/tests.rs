use axum::body::Body;
use axum::extract::Request;
use serde_json::Value;
use tidegate_domain::{Clock, Ledger as _, QueueName};
use tidegate_edge::{Edge, Principals};
use tidegate_testkit::{Setup, TestClock};
use tower::ServiceExt as _;

use super::*;
use crate::config::{Loaded, Sources};
use crate::faulty::FaultyLedger;
use crate::telemetry;

/// Queues that keep messages for a minute, and the clock that says when it is over.
struct Site {
    clock: Arc<TestClock>,
    ledger: Arc<FaultyLedger>,
    app: Router,
}

impl Site {
    async fn new() -> Self {
        let setup = Setup::default();
        let test_clock = setup.clock.clone();
        let ledger = Arc::new(FaultyLedger::new(setup));
        let mut settings = Loaded::from_sources(&Sources::default()).unwrap().settings;
        settings.queues.otherwise.retention_ms = Some(60_000);
        let clock: Arc<dyn Clock> = test_clock.clone();
        let nothing = Box::new(|| Ok(Vec::new()));
        let policies = crate::wiring::policies(&settings, clock.clone(), nothing).await.unwrap();
        let (sms, metrics) = (QueueName::new("sms").unwrap(), telemetry::metrics());
        let gateway = Gateway::new(ledger.clone(), clock.clone(), &settings, sms, policies, metrics);
        let app = Edge::new(settings.limits, Principals::none(), clock, true)
            .wrap(crate::http::routes(Arc::new(gateway)));
        Self { clock: test_clock, ledger, app }
    }

    async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        let request = request.header("consumerGroup", "jobs").header("messageCount", "10");
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response = self.app.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }
}

#[tokio::test]
async fn past_their_retention_messages_can_neither_be_popped_nor_viewed() {
    let site = Site::new().await;
    let viewed = async || site.ask("GET", "/queue/view", "").await.1.as_array().unwrap().len();
    for text in ["popped", "left"] {
        assert_eq!(site.ask("POST", "/queue/push", text).await.0, 200);
    }
    assert_eq!(site.ask("GET", "/queue/pop", "").await.1["content"], "popped");
    site.clock.advance_ms(59_999);
    site.ledger.sweep().await.unwrap();
    assert_eq!(viewed().await, 2, "consumed or not");
    site.clock.advance_ms(1);
    site.ledger.sweep().await.unwrap();
    assert_eq!(viewed().await, 0);
    assert_eq!(site.ask("GET", "/queue/pop", "").await.0, 404);
    assert_eq!(site.ledger.counts().await.unwrap().expired, 1);
}

use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::extract::Request;
use serde_json::Value;
use tidegate_domain::{Clock, Ledger as _, QueueName};
use tidegate_edge::{Edge, Principals};
use tidegate_testkit::{Setup, TestClock};
use tower::ServiceExt as _;

use super::*;
use crate::config::{Loaded, Outlet, PullMode, Sources};
use crate::faulty::FaultyLedger;
use crate::telemetry;

const LEASE_MS: u64 = 100;
const ATTEMPTS_MAX: u32 = 2;

/// Queues that keep messages for a minute, and the clock that says when it is over.
struct Site {
    clock: Arc<TestClock>,
    ledger: Arc<FaultyLedger>,
    app: Router,
}

impl Site {
    async fn new() -> Self {
        Self::with(PullMode::Consume).await
    }

    async fn with(mode: PullMode) -> Self {
        let setup = Setup::default();
        let test_clock = setup.clock.clone();
        let ledger = Arc::new(FaultyLedger::new(setup));
        let mut settings = Loaded::from_sources(&Sources::default()).unwrap().settings;
        let kept = &mut settings.queues.otherwise;
        (kept.outlet, kept.retention_ms) = (Outlet::Pull(mode), Some(60_000));
        (kept.lease_ms, kept.attempts_max) = (LEASE_MS, ATTEMPTS_MAX);
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
        let response = self.respond(method, path, body).await;
        let status = response.status().as_u16();
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// What a view holds, and where it says to go on.
    async fn view(&self, query: &str) -> (Vec<String>, Option<String>) {
        let response = self.respond("GET", &format!("/queue/view?{query}"), "").await;
        let next = response.headers().get("tidegate-next").map(|next| next.to_str().unwrap().to_owned());
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        let messages: Vec<Value> = serde_json::from_slice(&bytes).unwrap();
        let content = |message: &Value| message["content"].as_str().unwrap().to_owned();
        (messages.iter().map(content).collect(), next)
    }

    async fn respond(&self, method: &str, path: &str, body: &str) -> axum::response::Response {
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        let request = request.header("consumerGroup", "jobs").header("messageCount", "10");
        let request = request.body(Body::from(body.to_owned())).unwrap();
        self.app.clone().oneshot(request).await.unwrap()
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

/// Forty messages, of which some are popped and most are taken back, seen through look-ups of two messages each.
#[tokio::test]
async fn a_view_reads_so_much_and_says_where_to_go_on() {
    let site = Site::new().await;
    for n in 0..40 {
        assert_eq!(site.ask("POST", "/queue/push", &n.to_string()).await.0, 200);
        if [5, 36].contains(&n) {
            assert_eq!(site.ask("POST", "/queue/purge", "").await.0, 200);
        } else if n < 3 || n == 38 {
            assert_eq!(site.ask("GET", "/queue/pop", "").await.0, 200);
        }
    }
    let all = ["0", "1", "2", "37", "38", "39"];
    for (query, expected) in [("consumed=yes", &all[..4]), ("consumed=no", &all[4..]), ("", &all)] {
        site.ledger.examined_max.store(0, Ordering::SeqCst);
        assert_eq!(site.view(query).await, (expected.iter().map(ToString::to_string).collect(), None));
        site.ledger.examined_max.store(2, Ordering::SeqCst);
        let (mut found, mut next) = site.view(query).await;
        assert!(next.is_some(), "{query}: twenty look-ups are more than one request may make");
        let mut requests = 1;
        while let Some(after) = next {
            let (more, further) = site.view(&format!("{query}&after={after}")).await;
            found.extend(more);
            next = further;
            requests += 1;
        }
        assert_eq!((found, requests), (expected.iter().map(ToString::to_string).collect(), 2), "{query}");
    }
    assert_eq!(site.ask("GET", "/queue/view?after=x", "").await.0, 400);
}

#[tokio::test]
async fn a_pop_looks_behind_what_it_has_to_give_up() {
    let site = Site::with(PullMode::Reserve).await;
    for text in ["given up", "next"] {
        assert_eq!(site.ask("POST", "/queue/push", text).await.0, 200);
    }
    for _ in 0..ATTEMPTS_MAX {
        assert_eq!(site.ask("GET", "/queue/pop", "").await.1["content"], "given up");
        site.clock.advance_ms(LEASE_MS);
    }
    let (status, popped) = site.ask("GET", "/queue/pop", "").await;
    assert_eq!((status, &popped["content"]), (200, &Value::from("next")));
    assert_eq!(site.ledger.counts().await.unwrap().dead, 1);
}

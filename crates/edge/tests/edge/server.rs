use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::routing::{get, post};
use tidegate_domain::{Clock, Timestamp};
use tidegate_edge::{ApiError, Edge, FieldError, Limits, Principal, Principals, read_body, read_json, serve};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::client::Client;
use crate::logs::subscribe;

/// An edge on a port of its own, around a handful of routes.
pub struct Server {
    pub addr: SocketAddr,
    pub edge: Edge,
    pub clock: Arc<PinnedClock>,
    stop: Option<oneshot::Sender<()>>,
    pub ended: JoinHandle<()>,
}

#[derive(Debug)]
pub struct PinnedClock(AtomicI64);

impl Clock for PinnedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn monotonic_ns(&self) -> u64 {
        self.now().since_ms(Timestamp::from_millis(0)) * 1_000_000
    }
}

impl PinnedClock {
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

/// Nothing here runs out by itself; each test shortens what it is about.
pub fn limits() -> Limits {
    // Longer than any test waits: what ends is ended by the limit that the test has set.
    let long = Duration::from_secs(3_600);
    Limits {
        connections_max: 100,
        connections_per_client_percent: 100,
        first_byte_timeout: long,
        header_timeout: long,
        body_timeout: long,
        idle_timeout: long,
        write_timeout: long,
        header_bytes_max: 8 * 1024,
        body_bytes_max: 1_000,
        bodies_bytes_max: 1 << 20,
        bodies_per_client_percent: 100,
        json_depth_max: 8,
        drain_timeout: long,
    }
}

impl Server {
    pub async fn start(limits: Limits) -> Self {
        Self::with(limits, Router::new(), Principals::none()).await
    }

    pub async fn with(limits: Limits, extra: Router, principals: Principals) -> Self {
        subscribe();
        let clock = Arc::new(PinnedClock(AtomicI64::new(1_700_000_000_000)));
        let open = principals.is_empty();
        let edge = Edge::new(limits, principals, clock.clone(), open);
        let app = edge.wrap(routes(limits).merge(extra));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(serve(listener, app, edge.clone(), async {
            let _ = stopped.await;
        }));
        Self { addr, edge, clock, stop: Some(stop), ended }
    }

    pub async fn client(&self) -> Client {
        Client::connect(self.addr).await
    }

    pub fn stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }
}

fn routes(limits: Limits) -> Router {
    let json = async move |request: Request| {
        read_json(request, &limits).await.map(|object| serde_json::Value::Object(object).to_string())
    };
    let raw = async move |request: Request| read_body(request, &limits).await;
    Router::new()
        .route("/ping", get(async || "pong"))
        .route("/health/live", get(async || "live"))
        .route("/health/ready", get(async || "ready"))
        .route("/json", post(json))
        .route("/raw", post(raw))
        .route("/unread", post(async || "not read"))
        .route("/panic", get(async || -> &'static str { panic!("the handler's own secret") }))
        .route("/me", get(async |me: Principal| format!("{} {}", me.name, me.role.as_str())))
        .route(
            "/fields",
            get(async || -> ApiError { ApiError::invalid_fields(vec![FieldError::new("a", "b")]) }),
        )
        .route(
            "/busy",
            get(async || -> ApiError { ApiError::unavailable("full").caused_by("a secret cause") }),
        )
        .route(
            "/slow",
            get(async || {
                tokio::time::sleep(Duration::from_millis(300)).await;
                "done"
            }),
        )
}

use std::io;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::post;
use tidegate_edge::{ApiError, Principals};
use tracing::Level;

use crate::server::{Server, limits};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn listen(level: Level) -> (Lines, tracing::subscriber::DefaultGuard) {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    (lines, tracing::subscriber::set_default(subscriber))
}

async fn server() -> Server {
    let failing = post(async || -> Result<(), ApiError> {
        tracing::warn!("said by the handler");
        Err(ApiError::internal("the ledger's own words"))
    });
    Server::with(limits(), Router::new().route("/failing", failing), Principals::none()).await
}

// One thread serves and asks, so that the subscriber of this test hears all of it and nothing else.
#[tokio::test]
async fn every_line_of_a_request_carries_its_id_and_none_its_secrets() {
    let (lines, _listening) = listen(Level::DEBUG);
    let server = server().await;
    let mut client = server.client().await;
    let headers = "X-Request-Id: mine\r\nX-Api-Key: hush\r\nAuthorization: Bearer hush\r\n";
    assert_eq!(client.post("/failing?hush=1", headers, "hush").await.status, 500);

    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    for expected in [
        "said by the handler",
        "the ledger's own words",
        "answered method=\"POST\" path=\"/failing\" status=500",
    ] {
        let line =
            text.lines().find(|line| line.contains(expected)).unwrap_or_else(|| panic!("{expected}: {text}"));
        assert!(line.contains("request{id=\"mine\"}"), "{line}");
    }
    assert!(!text.contains("hush"), "{text}");
}

#[tokio::test]
async fn at_info_only_failures_are_logged() {
    let (lines, _listening) = listen(Level::INFO);
    let server = server().await;
    let mut client = server.client().await;
    assert_eq!(client.get("/ping", "").await.status, 200);
    assert_eq!(client.get("/nowhere", "").await.status, 404);
    assert_eq!(lines.0.lock().unwrap().len(), 0);
    assert_eq!(client.post("/failing", "", "").await.status, 500);
    assert!(!lines.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_api_key_in_a_path_is_not_logged() {
    let server = server().await;
    let mut client = server.client().await;
    // A line is known to tracing once it has been said. If another test, which nobody listens to, were the first to
    // say it just now, it would be taken for one that nobody wants.
    assert_eq!(client.get("/ping", "").await.status, 200);
    let (lines, _listening) = listen(Level::DEBUG);
    for path in ["/keys/tg_hush", "/keys/%74g_hush/more", "/keys/t%67%5Fhush"] {
        assert_eq!(client.get(path, "").await.status, 404);
    }
    assert_eq!(client.get("/keys/tg", "").await.status, 404);

    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert!(!text.contains("hush"), "{text}");
    for expected in ["path=\"/keys/tg_…\"", "path=\"/keys/tg_…/more\"", "path=\"/keys/tg\""] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn the_subject_of_an_audit_line_is_quoted_and_escaped() {
    let (lines, _listening) = listen(Level::INFO);
    tidegate_edge::Audit::of_signal("SIGHUP").record("quota set", "al\u{202e}ice\nbob\u{200b}");
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("subject=\"al\\u{202e}ice\\nbob\\u{200b}\""), "{text}");
}

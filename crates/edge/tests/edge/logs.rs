//! What is logged of a request, and what is not.

use std::cell::RefCell;
use std::io;
use std::sync::OnceLock;

use axum::Router;
use axum::routing::post;
use tidegate_edge::{ApiError, Principals};
use tracing::Level;

use crate::server::{Server, limits};

thread_local! {
    /// What was logged on this thread since it began to listen.
    static WRITTEN: RefCell<Option<String>> = const { RefCell::new(None) };
}

struct Written;

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        WRITTEN.with_borrow_mut(|written| {
            if let Some(written) = written {
                written.push_str(str::from_utf8(bytes).unwrap());
            }
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One subscriber for all tests of this program, there before any of them logs a line. tracing asks a subscriber only once
/// whether it wants a line: when a line is first logged on a thread without a subscriber, no test ever gets that line.
pub fn subscribe() {
    static SUBSCRIBED: OnceLock<()> = OnceLock::new();
    SUBSCRIBED.get_or_init(|| {
        tracing_subscriber::fmt()
            .with_max_level(Level::DEBUG)
            .with_ansi(false)
            .with_writer(|| Written)
            .init();
    });
}

/// A test is one thread that serves and asks, so its lines are all of its own requests and no other test's.
fn listen() {
    subscribe();
    WRITTEN.set(Some(String::new()));
}

fn written() -> String {
    WRITTEN.with_borrow(|written| written.clone().expect("listen() comes first"))
}

async fn server() -> Server {
    let failing = post(async || -> Result<(), ApiError> {
        tracing::warn!("said by the handler");
        Err(ApiError::internal("the ledger's own words"))
    });
    Server::with(limits(), Router::new().route("/failing", failing), Principals::none()).await
}

#[tokio::test]
async fn every_line_of_a_request_carries_its_id_and_none_its_secrets() {
    listen();
    let server = server().await;
    let mut client = server.client().await;
    let headers = "X-Request-Id: mine\r\nX-Api-Key: hush\r\nAuthorization: Bearer hush\r\n";
    assert_eq!(client.post("/failing?hush=1", headers, "hush").await.status, 500);

    let text = written();
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
    listen();
    let server = server().await;
    let mut client = server.client().await;
    let above_debug = || written().lines().filter(|line| !line.contains(" DEBUG ")).count();
    assert_eq!(client.get("/ping", "").await.status, 200);
    assert_eq!(client.get("/nowhere", "").await.status, 404);
    assert_eq!(above_debug(), 0, "{}", written());
    assert_eq!(client.post("/failing", "", "").await.status, 500);
    assert_ne!(above_debug(), 0);
}

#[tokio::test]
async fn an_api_key_in_a_path_is_not_logged() {
    listen();
    let server = server().await;
    let mut client = server.client().await;
    for path in ["/keys/tg_hush", "/keys/%74g_hush/more", "/keys/t%67%5Fhush"] {
        assert_eq!(client.get(path, "").await.status, 404);
    }
    assert_eq!(client.get("/keys/tg", "").await.status, 404);

    let text = written();
    assert!(!text.contains("hush"), "{text}");
    for expected in ["path=\"/keys/tg_…\"", "path=\"/keys/tg_…/more\"", "path=\"/keys/tg\""] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn the_subject_of_an_audit_line_is_quoted_and_escaped() {
    listen();
    tidegate_edge::Audit::of_signal("SIGHUP").record("quota set", "al\u{202e}ice\nbob\u{200b}");
    let text = written();
    assert!(text.contains("subject=\"al\\u{202e}ice\\nbob\\u{200b}\""), "{text}");
}

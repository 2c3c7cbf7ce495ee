use axum::Router;
use tidegate_edge::{PrincipalSpec, Principals, Role, new_api_key};

use crate::server::{Server, limits};

#[tokio::test]
async fn a_missing_doubled_or_garbled_host_is_a_bad_request() {
    let server = Server::start(limits()).await;
    for (head, status) in [
        ("HTTP/1.1\r\n", 400),
        ("HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n", 400),
        ("HTTP/1.1\r\nHost: \r\n", 400),
        ("HTTP/1.1\r\nHost: localhost, localhost\r\n", 400),
        ("HTTP/1.1\r\nHost: user@localhost\r\n", 400),
        ("HTTP/1.1\r\nHost: localhost\r\n", 200),
        ("HTTP/1.0\r\n", 200),
        ("HTTP/1.0\r\nHost: localhost\r\nHost: localhost\r\n", 400),
    ] {
        let answer = server.client().await.ask(format!("GET /ping {head}\r\n")).await;
        assert_eq!(answer.status, status, "{head:?} {answer:?}");
        assert!(status == 200 || answer.code() == "invalid_host");
    }
}

#[tokio::test]
async fn an_open_gateway_answers_to_names_of_this_machine_only() {
    let server = Server::start(limits()).await;
    for (target, host, status) in [
        ("/ping", "localhost:8080", 200),
        ("/ping", "127.0.0.1", 200),
        ("/ping", "[::1]:80", 200),
        ("/ping", "evil.example", 421),
        ("/ping", "localhost.evil.example", 421),
        ("http://evil.example/ping", "localhost", 421),
        ("http://localhost/ping", "localhost", 200),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(server.client().await.ask(request).await.status, status, "{target} {host}");
    }
}

#[tokio::test]
async fn a_gateway_with_principals_answers_to_any_name() {
    let (key, hash) = new_api_key().unwrap();
    let spec = PrincipalSpec {
        name: "anna".into(),
        role: Role::User,
        password_hash: None,
        api_key_hashes: vec![hash],
    };
    let server = Server::with(limits(), Router::new(), Principals::new(vec![spec]).unwrap()).await;
    let request = format!("GET /me HTTP/1.1\r\nHost: gateway.example\r\nX-Api-Key: {key}\r\n\r\n");
    assert_eq!(server.client().await.ask(request).await.body, "anna USER");
}

#[tokio::test]
async fn a_head_beyond_its_limit_is_answered_431() {
    let server = Server::start(limits()).await;
    let mut client = server.client().await;
    assert_eq!(client.get("/ping", &format!("X-Pad: {}\r\n", "x".repeat(7_000))).await.status, 200);
    let answer = client.get("/ping", &format!("X-Pad: {}\r\n", "x".repeat(9_000))).await;
    assert_eq!((answer.status, answer.code().as_str()), (431, "headers_too_large"));
    assert_eq!(client.get(&format!("/ping?{}", "x".repeat(9_000)), "").await.status, 431);
    assert_eq!(client.get("/ping", "").await.status, 200);
    // Beyond what is buffered at all, hyper answers, without a body.
    let mut client = server.client().await;
    assert_eq!(client.get("/ping", &format!("X-Pad: {}\r\n", "x".repeat(200_000))).await.status, 431);
    client.closed().await;
}

/// Each of these is followed by the bytes of a second request: whatever the first is taken for, the second
/// must not be answered, unless the first was read in the one way that there is.
#[tokio::test]
async fn ambiguous_lengths_never_smuggle_a_second_request() {
    const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let server = Server::start(limits()).await;
    for headers in [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length: \r\n",
        "Content-Length : 5\r\n",
        "Content-Length: 18446744073709551621\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: \x0bchunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
    ] {
        let mut client = server.client().await;
        let request = format!("POST /raw HTTP/1.1\r\nHost: localhost\r\n{headers}\r\nhello{SMUGGLED}");
        let answer = client.ask(request).await;
        assert_eq!(answer.status, 400, "{headers:?} {answer:?}");
        client.closed().await;
    }
    for headers in [
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
    ] {
        let request = format!("POST /raw HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n0\r\n\r\n");
        let answer = server.client().await.ask(request).await;
        assert_eq!(answer.status, 400, "{headers:?} {answer:?}");
    }
    // The length is ignored, as it has to be, and the connection not used again.
    for headers in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\nConnection: keep-alive\r\n",
    ] {
        let mut client = server.client().await;
        let request =
            format!("POST /raw HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n2\r\nhi\r\n0\r\n\r\n{SMUGGLED}");
        let answer = client.ask(request).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "hi"), "{headers:?}");
        client.closed().await;
    }
    // Agreeing lengths are one length.
    let mut client = server.client().await;
    let headers = "Content-Length: 5\r\nContent-Length: 5\r\n";
    let answer =
        client.ask(format!("POST /raw HTTP/1.1\r\nHost: localhost\r\n{headers}\r\nhello{SMUGGLED}")).await;
    assert_eq!(answer.body, "hello");
    assert_eq!(client.answer().await.status, 404);
}

#[tokio::test]
async fn requests_sent_ahead_are_answered_in_order() {
    let server = Server::start(limits()).await;
    let mut client = server.client().await;
    let request = |id| format!("GET /ping HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: {id}\r\n\r\n");
    client.send((0..40).map(request).collect::<String>()).await;
    for id in 0..40 {
        assert_eq!(client.answer().await.header("x-request-id"), Some(id.to_string().as_str()));
    }
}

#[tokio::test]
async fn a_body_in_another_encoding_is_refused_not_kept_as_its_bytes() {
    let server = Server::start(limits()).await;
    let ask = async |headers: &str| {
        let request =
            format!("POST /raw HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n{headers}\r\nhello");
        server.client().await.ask(request).await
    };
    let refused = ask("Content-Encoding: gzip\r\n").await;
    assert_eq!((refused.status, refused.code().as_str()), (415, "unsupported_content_encoding"));
    assert_eq!(ask("Content-Encoding: identity\r\nContent-Encoding: br\r\n").await.status, 415);
    assert_eq!(ask("Content-Encoding: Identity\r\n").await.status, 200);
}

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
    // Beyond what is read at all, the connection ends with the answer.
    let mut client = server.client().await;
    let answer = client.get("/ping", &format!("X-Pad: {}\r\n", "x".repeat(200_000))).await;
    answer.assert_error(431, "headers_too_large", "/ping");
    client.closed().await;
    let mut client = server.client().await;
    client.get("/ping", &"X: y\r\n".repeat(200)).await.assert_error(431, "headers_too_large", "/ping");
    client.closed().await;
}

const PING: &str = "GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// hyper has no hook for heads that it does not take: it answered them with an empty body and without an id. Whatever is
/// sent ahead of such a head is answered first, and whatever comes behind it never is.
#[tokio::test]
async fn a_head_that_is_not_valid_is_answered_in_the_one_shape_and_in_its_order() {
    let server = Server::start(limits()).await;
    for (head, path) in [
        // Some readers take a bare LF for the end of a line, others do not.
        ("GET /ping HTTP/1.1\nHost: localhost\r\n\r\n", "/ping"),
        ("GET /ping HTTP/1.1\r\nHost: localhost\n\r\n", "/ping"),
        ("GET /ping HTTP/1.1\r\nHost: localhost\r\n\n", "/ping"),
        ("GET /ping HTTP/1.1\r\nHost: localhost\r\nX: a\nContent-Length: 50\r\n\r\n", "/ping"),
        ("\nGET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n", "/"),
        ("GET /ping HTTP/1.1\r\nHost: localhost\rX: a\r\n\r\n", "/ping"),
        ("GET /ping HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n", "/ping"),
        ("GET /ping HTTP/1.1\r\nHost : localhost\r\n\r\n", "/ping"),
        ("GET /ping HTTP/1.1\r\nHost: local\0host\r\n\r\n", "/ping"),
        ("GET /ping HTTP/1.1\r\n: localhost\r\n\r\n", "/ping"),
        ("GET /ping HTTP/1.2\r\nHost: localhost\r\n\r\n", "/ping"),
        ("GET  /ping HTTP/1.1\r\nHost: localhost\r\n\r\n", "/"),
        ("GE(T /ping HTTP/1.1\r\nHost: localhost\r\n\r\n", "/"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "/"),
        ("\x16\x03\x01\x02\0\x01\0", "/"),
    ] {
        let mut client = server.client().await;
        client.send(format!("{PING}{PING}{head}{PING}")).await;
        assert_eq!((client.answer().await.status, client.answer().await.status), (200, 200), "{head:?}");
        let answer = client.answer().await;
        answer.assert_error(400, "invalid_head", path);
        assert_eq!(answer.header("connection"), Some("close"), "{head:?}");
        client.closed().await;
    }
}

/// hyper ignores extensions, as RFC 9112 7.1.1 asks for. That is harmless as long as an extension can't hide a line
/// break: the body then ends for everyone in the same place.
#[tokio::test]
async fn a_chunked_body_ends_in_one_place() {
    let server = Server::start(limits()).await;
    let head = "POST /raw HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in [
        "5;a=b\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0;a=b\r\nTrailer: x\r\n\r\n",
        "5 ;a\r\nhello\r\n000\r\n\r\n",
    ] {
        let mut client = server.client().await;
        client.send(format!("{head}{body}{PING}")).await;
        assert_eq!((client.answer().await.body, client.answer().await.body), ("hello".into(), "pong".into()));
    }
    for body in [
        "5\nhello\r\n0\r\n\r\n",
        "5;a\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhelloo\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nTrailer: x\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
    ] {
        let mut client = server.client().await;
        client.send(format!("{head}{body}{PING}")).await;
        client.answer().await.assert_error(400, "body_broken", "/raw");
        client.closed().await;
    }
}

/// A request may come in any pieces, and so may the next.
#[tokio::test]
async fn requests_are_answered_however_they_are_cut() {
    let server = Server::start(limits()).await;
    let chunked =
        "POST /raw HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
    let counted = "POST /raw HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi";
    let all = [chunked, PING, counted, "\r\n", PING].concat();
    for piece in [1, 2, 3, 29, 30, 31, 90, all.len()] {
        let mut client = server.client().await;
        for bytes in all.as_bytes().chunks(piece) {
            client.send(bytes).await;
            tokio::task::yield_now().await;
        }
        for expected in ["hi", "pong", "hi", "pong"] {
            assert_eq!(client.answer().await.body, expected, "in pieces of {piece}");
        }
    }
}

/// Each of these is followed by the bytes of a second request: whatever the first is taken for, the second
/// must not be answered.
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
        answer.assert_error(400, &answer.code(), "/raw");
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
    for headers in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\nConnection: keep-alive\r\n",
    ] {
        let mut client = server.client().await;
        let request =
            format!("POST /raw HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n2\r\nhi\r\n0\r\n\r\n{SMUGGLED}");
        client.ask(request).await.assert_error(400, "invalid_content_length", "/raw");
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

#[tokio::test]
async fn a_stand_in_does_not_tell_which_methods_its_target_takes() {
    let root = axum::Router::new().route("/", axum::routing::get(async || "root"));
    let server = Server::with(limits(), root, tidegate_edge::Principals::none()).await;
    let answer = server.client().await.ask("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    answer.assert_error(400, "invalid_head", "/");
    assert_eq!(answer.header("allow"), None, "{answer:?}");
}

use crate::server::{Server, limits};

const JSON: &str = "Content-Type: application/json\r\n";

#[tokio::test]
async fn an_object_in_json_is_read() {
    let server = Server::start(limits()).await;
    let mut client = server.client().await;
    for content_type in [JSON, "content-type: Application/Json; charset=utf-8\r\n"] {
        assert_eq!(client.post("/json", content_type, "{\"a\": 1}").await.body, "{\"a\":1}");
    }
    let chunked = "POST /json HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n";
    let answer = client.ask(format!("{chunked}{JSON}\r\n4\r\n{{\"a\"\r\n3\r\n:2}}\r\n0\r\n\r\n")).await;
    assert_eq!(answer.body, "{\"a\":2}");
}

#[tokio::test]
async fn everything_else_is_refused_with_a_reason() {
    let server = Server::start(limits()).await;
    let deep = format!("{}1{}", "{\"a\":".repeat(9), "}".repeat(9));
    for (content_type, body, status, code) in [
        ("", "{}", 415, "unsupported_media_type"),
        ("Content-Type: text/plain\r\n", "{}", 415, "unsupported_media_type"),
        ("Content-Type: application/json; charset=latin1\r\n", "{}", 415, "unsupported_media_type"),
        (JSON, "", 400, "malformed_json"),
        (JSON, "{\"a\":", 400, "malformed_json"),
        (JSON, "[1]", 400, "malformed_json"),
        (JSON, "{} x", 400, "malformed_json"),
        (JSON, "{\"a\":1,\"a\":2}", 400, "malformed_json"),
        (JSON, deep.as_str(), 400, "json_too_deep"),
    ] {
        let answer = server.client().await.post("/json", content_type, body).await;
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{content_type} {body}");
    }
    let answer = server.client().await.post("/json", JSON, b"{\"a\":\"\xff\"}").await;
    assert_eq!((answer.status, answer.code().as_str()), (400, "malformed_json"));
    let answer = server.client().await.post("/json", JSON, "{\n  \"a\": nope}").await;
    let message = answer.json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("line 2 column 9"), "{message}");
}

#[tokio::test]
async fn a_declared_length_beyond_the_limit_is_refused_unread() {
    let server = Server::start(limits()).await;
    let mut client = server.client().await;
    let head = format!("POST /json HTTP/1.1\r\nHost: localhost\r\n{JSON}Content-Length: 1001\r\n\r\n");
    let answer = client.ask(head).await;
    assert_eq!((answer.status, answer.code().as_str()), (413, "body_too_large"));
    // Asked whether to go on, a client is not told to.
    let head =
        "POST /raw HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n";
    assert_eq!(server.client().await.ask(head).await.status, 413);
}

#[tokio::test]
async fn a_body_that_grows_beyond_the_limit_is_refused_while_reading() {
    let server = Server::start(limits()).await;
    let mut client = server.client().await;
    client.send("POST /raw HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    for _ in 0..4 {
        client.send(format!("fa\r\n{}\r\n", "x".repeat(250))).await;
    }
    client.send("1\r\nx\r\n").await;
    assert_eq!(client.answer().await.status, 413);
}

#[tokio::test]
async fn a_body_as_large_as_the_limit_is_read_whole_and_its_connection_kept() {
    let server = Server::start(limits()).await;
    let mut client = server.client().await;
    let body = "x".repeat(1_000);
    assert_eq!(client.post("/raw", "", &body).await.body, body);
    assert_eq!(client.get("/ping", "").await.body, "pong");
}

/// Closing with unread bytes in the socket makes the kernel reset the connection, and the client lose the answer.
#[tokio::test]
async fn a_client_that_keeps_sending_still_sees_why_it_was_refused() {
    let server = Server::start(limits()).await;
    for _ in 0..20 {
        let mut client = server.client().await;
        client.send("POST /raw HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n").await;
        client.send(vec![b'x'; 100_000]).await;
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        client.send(vec![b'x'; 100_000]).await;
        assert_eq!(client.answer().await.status, 413);
    }
}

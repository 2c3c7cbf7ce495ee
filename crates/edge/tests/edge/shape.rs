use serde_json::json;

use crate::server::{Server, limits};

#[tokio::test]
async fn an_unknown_route_and_a_wrong_method_have_the_one_shape() {
    let server = Server::start(limits()).await;
    let mut client = server.client().await;

    let answer = client.get("/nowhere?secret=1", "").await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(
        answer.json(),
        json!({
            "timestamp": "2023-11-14T22:13:20.000Z", "status": 404, "error": "Not Found",
            "message": "no such resource", "path": "/nowhere", "code": "not_found",
        })
    );

    let answer = client.get("/json", "").await;
    assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")));
    assert_eq!(
        (answer.json()["path"].as_str(), answer.code().as_str()),
        (Some("/json"), "method_not_allowed")
    );
}

#[tokio::test]
async fn fields_and_retry_after_are_in_the_answer_and_causes_are_not() {
    let server = Server::start(limits()).await;
    let mut client = server.client().await;

    let answer = client.get("/fields", "").await;
    assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"));
    assert_eq!(answer.json()["fields"], json!([{"field": "a", "message": "b"}]));

    let answer = client.get("/busy", "").await;
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    assert_eq!(answer.json()["retryAfterMs"], 1_000);
    assert!(!answer.body.contains("secret"), "{}", answer.body);
}

#[tokio::test]
async fn a_panic_answers_500_and_its_connection_goes_on() {
    let server = Server::start(limits()).await;
    let mut client = server.client().await;
    let answer = client.get("/panic", "").await;
    assert_eq!((answer.status, answer.code().as_str()), (500, "internal"));
    assert!(!answer.body.contains("secret") && answer.header("x-request-id").is_some());
    assert_eq!(client.get("/ping", "").await.body, "pong");
}

#[tokio::test]
async fn a_request_id_is_taken_when_fit_and_made_otherwise() {
    let server = Server::start(limits()).await;
    let mut client = server.client().await;
    let mut id_for = async |header: String| {
        let answer = client.get("/ping", &header).await;
        answer.header("x-request-id").unwrap().to_owned()
    };
    assert_eq!(id_for("X-Request-Id: abc-123\r\n".into()).await, "abc-123");
    let made = id_for(String::new()).await;
    assert_eq!(made.len(), 32);
    assert_ne!(made, id_for(String::new()).await);
    for unfit in ["with space", "quo\"te", &"x".repeat(129), ""] {
        assert_eq!(id_for(format!("X-Request-Id: {unfit}\r\n")).await.len(), 32, "{unfit}");
    }
}

#[tokio::test]
async fn every_answer_carries_the_request_id() {
    let server = Server::start(limits()).await;
    let mut client = server.client().await;
    for path in ["/ping", "/nowhere", "/json", "/fields", "/busy", "/panic"] {
        let answer = client.get(path, "X-Request-Id: mine\r\n").await;
        assert_eq!(answer.header("x-request-id"), Some("mine"), "{path}");
    }
    let answer = client.ask("GET /ping HTTP/1.1\r\nX-Request-Id: mine\r\n\r\n").await;
    assert_eq!((answer.status, answer.header("x-request-id")), (400, Some("mine")));
}

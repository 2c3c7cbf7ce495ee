use std::time::Duration;

use axum::Router;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tidegate_edge::{PrincipalSpec, Principals, Role, hash_password, new_api_key};

use crate::client::{Answer, Client};
use crate::server::{Server, limits};

const CHALLENGE: &str = "Basic realm=\"tidegate\", charset=\"UTF-8\"";

/// anna (USER) has a password, ben (ADMIN) the returned key.
async fn server() -> (Server, String) {
    let (key, hash) = new_api_key().unwrap();
    let anna = PrincipalSpec {
        name: "anna".into(),
        role: Role::User,
        password_hash: Some(hash_password(b"open sesame").unwrap()),
        api_key_hashes: Vec::new(),
    };
    let ben = PrincipalSpec {
        name: "ben".into(),
        role: Role::Admin,
        password_hash: None,
        api_key_hashes: vec![hash],
    };
    let principals = Principals::new(vec![anna, ben]).unwrap();
    (Server::with(limits(), Router::new(), principals).await, key)
}

fn basic(user: &str, password: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("{user}:{password}")))
}

fn assert_unauthenticated(answer: &Answer) {
    assert_eq!((answer.status, answer.code().as_str()), (401, "unauthenticated"));
    assert_eq!(answer.header("www-authenticate"), Some(CHALLENGE));
}

#[tokio::test]
async fn without_principals_everyone_is_the_local_admin() {
    let server = Server::start(limits()).await;
    assert_eq!(server.client().await.get("/me", "").await.body, "local ADMIN");
}

#[tokio::test]
async fn passwords_and_keys_tell_who_is_there() {
    let (server, key) = server().await;
    let mut client = server.client().await;
    assert_eq!(client.get("/me", &basic("anna", "open sesame")).await.body, "anna USER");
    assert_eq!(client.get("/me", &format!("X-Api-Key: {key}\r\n")).await.body, "ben ADMIN");
    assert_eq!(client.get("/me", &format!("Authorization: Bearer {key}\r\n")).await.body, "ben ADMIN");
}

#[tokio::test]
async fn every_route_but_health_needs_a_principal() {
    let (server, _) = server().await;
    let mut client = server.client().await;
    for path in ["/ping", "/me", "/nowhere", "/health/live/", "/health", "/metrics"] {
        assert_unauthenticated(&client.get(path, "").await);
    }
    assert_eq!(client.get("/health/live", "").await.status, 200);
    assert_eq!(client.get("/health/ready", "").await.status, 200);
}

#[tokio::test]
async fn whatever_is_wrong_gets_the_same_answer_for_the_same_work() {
    let (server, key) = server().await;
    let mut client = server.client().await;
    let mut answers = Vec::new();
    for (headers, verifications) in [
        (basic("anna", "wrong"), 1),
        (basic("nobody", "open sesame"), 2),
        (basic("ben", "open sesame"), 3),
        (format!("X-Api-Key: {key}x\r\n"), 3),
        ("Authorization: Digest x\r\n".to_owned(), 3),
        (String::new(), 3),
    ] {
        let answer = client.get("/me", &format!("X-Request-Id: same\r\n{headers}")).await;
        assert_unauthenticated(&answer);
        assert_eq!(server.edge.password_verifications(), verifications, "{headers}");
        let headers: Vec<_> = answer.headers.into_iter().filter(|(name, _)| name != "date").collect();
        answers.push((headers, answer.body));
    }
    for answer in &answers {
        assert_eq!(answer, &answers[0]);
    }
}

#[tokio::test]
async fn a_password_is_verified_once_and_again_after_five_minutes() {
    let (server, _) = server().await;
    let mut client = server.client().await;
    let headers = basic("anna", "open sesame");
    for _ in 0..20 {
        assert_eq!(client.get("/me", &headers).await.status, 200);
    }
    assert_eq!(server.edge.password_verifications(), 1);
    // The cache answers for this password only.
    assert_unauthenticated(&client.get("/me", &basic("anna", "open sesam")).await);
    server.clock.advance(Duration::from_secs(301));
    assert_eq!(client.get("/me", &headers).await.status, 200);
    assert_eq!(server.edge.password_verifications(), 3);
}

#[tokio::test]
async fn many_connections_with_one_password_share_its_verification() {
    let (server, _) = server().await;
    let headers = basic("anna", "open sesame");
    let requests: Vec<_> = (0..40)
        .map(|_| {
            let (addr, headers) = (server.addr, headers.clone());
            tokio::spawn(async move { Client::connect(addr).await.get("/me", &headers).await.status })
        })
        .collect();
    for request in requests {
        assert_eq!(request.await.unwrap(), 200);
    }
    assert!(server.edge.password_verifications() <= 2, "{}", server.edge.password_verifications());
}

#[tokio::test]
async fn failures_are_throttled_but_not_whoever_is_known() {
    let (server, key) = server().await;
    let mut client = server.client().await;
    let right = basic("anna", "open sesame");
    assert_eq!(client.get("/me", &right).await.status, 200);
    for _ in 0..10 {
        assert_unauthenticated(&client.get("/me", &basic("anna", "wrong")).await);
    }
    let before = server.edge.password_verifications();
    let answer = client.get("/me", &basic("anna", "wrong")).await;
    assert_eq!((answer.status, answer.code().as_str()), (429, "throttled"));
    assert_eq!(
        (answer.header("retry-after"), answer.json()["retryAfterMs"].as_u64()),
        (Some("60"), Some(60_000))
    );
    // By address, so other names and bad keys are stopped too; by then no password is verified any more.
    assert_eq!(client.get("/me", &basic("nobody", "x")).await.status, 429);
    assert_eq!(client.get("/me", "X-Api-Key: x\r\n").await.status, 429);
    assert_eq!(server.edge.password_verifications(), before);

    assert_eq!(client.get("/me", &right).await.status, 200);
    assert_eq!(client.get("/me", &format!("X-Api-Key: {key}\r\n")).await.status, 200);
    server.clock.advance(Duration::from_secs(60));
    assert_unauthenticated(&client.get("/me", &basic("anna", "wrong")).await);
}

#[tokio::test]
async fn parallel_guesses_do_not_slip_past_the_throttle() {
    let (server, _) = server().await;
    let guesses: Vec<_> = (0..60)
        .map(|n| {
            let (addr, headers) = (server.addr, basic("anna", &n.to_string()));
            tokio::spawn(async move { Client::connect(addr).await.get("/me", &headers).await.status })
        })
        .collect();
    for guess in guesses {
        // 503: on a busy machine some have waited for too long.
        assert!(matches!(guess.await.unwrap(), 401 | 429 | 503));
    }
    assert!(server.edge.password_verifications() <= 11, "{}", server.edge.password_verifications());
}

#[tokio::test]
async fn two_credentials_at_once_are_a_bad_request() {
    let (server, key) = server().await;
    let mut client = server.client().await;
    let (basic, key) = (basic("anna", "open sesame"), format!("X-Api-Key: {key}\r\n"));
    for headers in [format!("{basic}{basic}"), format!("{key}{key}"), format!("{basic}{key}")] {
        let answer = client.get("/me", &headers).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "ambiguous_credentials"));
    }
    assert_eq!(server.edge.password_verifications(), 0);
}

use axum::Router;
use axum::routing::get;
use tidegate_edge::{PrincipalSpec, Principals, Role, hash_password};

use crate::server::{Server, limits};

const FOREIGN: [&str; 11] = [
    "Sec-Fetch-Site: cross-site\r\n",
    "Sec-Fetch-Site: same-site\r\n",
    "Sec-Fetch-Site: Cross-Site\r\n",
    "Sec-Fetch-Site: same-origin\r\nSec-Fetch-Site: cross-site\r\n",
    "Origin: http://evil.example\r\n",
    "Origin: null\r\n",
    "Origin: http://localhost:8080\r\n",
    "Origin: https://localhost\r\nOrigin: http://evil.example\r\n",
    "Origin: http://localhost.evil.example\r\n",
    "Origin: file://localhost\r\n",
    "Origin: \r\n",
];

const OWN: [&str; 7] = [
    "",
    "Origin: http://localhost\r\n",
    "Origin: https://LocalHost\r\n",
    "Origin: http://localhost:80\r\n",
    "Sec-Fetch-Site: none\r\n",
    "Sec-Fetch-Site: same-origin\r\nOrigin: http://localhost\r\n",
    // A proxy in between that asks under a name of its own: the browser vouches for the page.
    "Sec-Fetch-Site: same-origin\r\nOrigin: https://gateway.example\r\n",
];

#[tokio::test]
async fn other_sites_pages_can_not_use_an_open_gateway() {
    let server = Server::start(limits()).await;
    let mut client = server.client().await;
    for headers in FOREIGN {
        for answer in [client.get("/ping", headers).await, client.post("/raw", headers, "x").await] {
            assert_eq!((answer.status, answer.code().as_str()), (403, "cross_site"), "{headers:?}");
        }
        assert_eq!(client.get("/health/live", headers).await.status, 200, "{headers:?}");
    }
    for headers in OWN {
        assert_eq!(client.get("/ping", headers).await.status, 200, "{headers:?}");
        assert_eq!(client.post("/raw", headers, "x").await.status, 200, "{headers:?}");
    }
    let ported = "GET /ping HTTP/1.1\r\nHost: localhost:8080\r\nOrigin: http://localhost:8080\r\n\r\n";
    assert_eq!(client.ask(ported).await.status, 200);
    let other_port = "GET /ping HTTP/1.1\r\nHost: localhost:8080\r\nOrigin: http://localhost:3000\r\n\r\n";
    assert_eq!(client.ask(other_port).await.status, 403);
}

/// A browser adds a password it remembers to whatever a page has it ask for.
#[tokio::test]
async fn nor_with_a_password_that_the_browser_remembers() {
    let spec = PrincipalSpec {
        name: "anna".into(),
        role: Role::Admin,
        password_hash: Some(hash_password(b"b").unwrap()),
        api_key_hashes: Vec::new(),
    };
    let principals = Principals::new(vec![spec]).unwrap().leaving("/devices/");
    let devices = Router::new().route("/devices/one", get(async || "shows a token"));
    let server = Server::with(limits(), devices, principals).await;
    let mut client = server.client().await;
    let login = "Authorization: Basic YW5uYTpi\r\n";
    for headers in FOREIGN {
        let answer = client.get("/me", &format!("{login}{headers}")).await;
        assert_eq!((answer.status, answer.code().as_str()), (403, "cross_site"), "{headers:?}");
        // What shows a token of its own brings nothing that a browser would add by itself.
        assert_eq!(client.get("/devices/one", headers).await.status, 200, "{headers:?}");
    }
    assert_eq!(server.edge.password_verifications(), 0, "refused before anything is verified");
    assert_eq!(client.get("/me", login).await.body, "anna ADMIN");
}

use tidegate_adapters::channels::webhook::{WebhookError, WebhookOptions, verify};
use tidegate_domain::{Claim, Delivery, Headers, Recipient};

use crate::sink::{Reply, Request, Sink, channel, claim, deliver};

const OLD: &str = "whsec_b2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xk";
const NEW: &str = "whsec_bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3";

fn pairs(headers: &[(&str, &str)]) -> Vec<(String, String)> {
    headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

async fn sent(options: impl Fn(WebhookOptions) -> WebhookOptions, claim: &Claim) -> Request {
    let sink = Sink::always(Reply::status("200 OK")).await;
    let channel = channel(options(sink.options()));
    assert_eq!(deliver(&channel, claim).await, Delivery::Delivered);
    let request = sink.requests().remove(0);
    assert_eq!(request.headers["host"], sink.address.to_string());
    request
}

fn is_signed_with(secret: &str, request: &Request) -> bool {
    let header = |name: &str| request.headers[name].as_str();
    let (id, timestamp) = (header("webhook-id"), header("webhook-timestamp"));
    verify(secret, id, timestamp, &request.body, header("webhook-signature"))
}

#[tokio::test]
async fn a_request_says_what_it_carries() {
    let request = sent(|options| options, &claim()).await;
    assert_eq!(
        (request.line.as_str(), request.body.as_slice()),
        ("POST /hook?key=geheim HTTP/1.1", &b"hello"[..])
    );
    for (name, value) in [
        ("webhook-id", claim().id.to_string().as_str()),
        ("webhook-timestamp", "1763244000"),
        ("tidegate-attempt", "3"),
        ("tidegate-queue", "hooks"),
        ("tidegate-recipient", "+4915112345"),
        ("content-type", "application/octet-stream"),
    ] {
        assert_eq!(request.headers[name], value, "{name}");
    }
    assert!(request.headers["user-agent"].starts_with("tidegate/"));
    assert!(!request.headers.contains_key("webhook-signature"), "there is no secret");
}

#[tokio::test]
async fn secrets_rotate_with_an_overlap() {
    let with = |secrets: &[&str]| {
        let secrets: Vec<_> = secrets.iter().map(|secret| (*secret).to_owned()).collect();
        move |options| WebhookOptions { secrets: secrets.clone(), ..options }
    };
    let before = sent(with(&[OLD]), &claim()).await;
    assert_eq!((is_signed_with(OLD, &before), is_signed_with(NEW, &before)), (true, false));
    let between = sent(with(&[OLD, NEW]), &claim()).await;
    assert_eq!((is_signed_with(OLD, &between), is_signed_with(NEW, &between)), (true, true));
    let after = sent(with(&[NEW]), &claim()).await;
    assert_eq!((is_signed_with(OLD, &after), is_signed_with(NEW, &after)), (false, true));
}

#[tokio::test]
async fn a_messages_headers_travel_and_the_channels_win() {
    let headers =
        Headers(pairs(&[("Content-Type", "text/x"), ("X-Trace", "Grüße"), ("authorization", "evil")]));
    let fixed = pairs(&[("Authorization", "Bearer geheim"), ("x-fixed", "1")]);
    let request =
        sent(|options| WebhookOptions { headers: fixed.clone(), ..options }, &Claim { headers, ..claim() })
            .await;
    for (name, value) in [
        ("content-type", "text/x"),
        ("x-trace", "Grüße"),
        ("authorization", "Bearer geheim"),
        ("x-fixed", "1"),
    ] {
        assert_eq!(request.headers[name], value, "{name}");
    }
}

#[tokio::test]
async fn nothing_can_be_smuggled_into_a_request() {
    let sink = Sink::always(Reply::status("200 OK")).await;
    let channel = channel(sink.options());
    for (name, value) in [
        ("x", "a\r\nhost: evil"),
        ("x", "a\nb: c"),
        ("x", "a\0"),
        ("x\r\ny", "z"),
        ("x: y", "z"),
        ("", "z"),
        ("host", "evil"),
        ("Content-Length", "0"),
        ("transfer-encoding", "chunked"),
        ("Connection", "close"),
        ("webhook-id", "another"),
        ("Webhook-Signature", "v1,x"),
        ("tidegate-queue", "another"),
    ] {
        let claim = Claim { headers: Headers(pairs(&[(name, value)])), ..claim() };
        let delivery = deliver(&channel, &claim).await;
        assert!(matches!(delivery, Delivery::Refused { .. }), "{name:?} {value:?}: {delivery:?}");
    }
    assert_eq!(sink.connections(), 0);
    assert!(Recipient::new("a\r\nx: y").is_err(), "a recipient has no line breaks to begin with");
}

#[tokio::test]
async fn any_recipient_fits_into_a_header() {
    let recipient = Some(Recipient::new("Jürgen 100%\u{2028}").unwrap());
    let request = sent(|options| options, &Claim { recipient, ..claim() }).await;
    assert_eq!(request.headers["tidegate-recipient"], "J%C3%BCrgen%20100%25%E2%80%A8");
    let request = sent(|options| options, &Claim { recipient: None, ..claim() }).await;
    assert!(!request.headers.contains_key("tidegate-recipient"));
}

#[tokio::test]
async fn no_secret_shows_in_a_dump() {
    let sink = Sink::always(Reply::status("200 OK")).await;
    let options = WebhookOptions {
        secrets: vec![NEW.to_owned()],
        headers: pairs(&[("authorization", "geheim")]),
        ..sink.options()
    };
    let dumps = [format!("{options:?}"), format!("{:?}", channel(options))];
    for dump in dumps {
        assert!(!dump.contains("geheim") && !dump.contains("bmV3"), "{dump}");
    }
}

#[tokio::test]
async fn wrong_options_are_named() {
    let clock = std::sync::Arc::new(tidegate_testkit::TestClock::new());
    let wrong = |options: WebhookOptions| {
        tidegate_adapters::channels::webhook::WebhookChannel::new(options, clock.clone()).err()
    };
    let fine = || WebhookOptions::new("http://example.org/");
    assert_eq!(wrong(fine()), None);
    let secrets = vec!["geheim".to_owned()];
    assert!(matches!(wrong(WebhookOptions { secrets, ..fine() }), Some(WebhookError::Secret(_))));
    let headers = pairs(&[("host", "x")]);
    assert!(matches!(wrong(WebhookOptions { headers, ..fine() }), Some(WebhookError::Header(_))));
    let permanent_statuses = vec![404, 200];
    assert_eq!(wrong(WebhookOptions { permanent_statuses, ..fine() }), Some(WebhookError::Status(200)));
    let total_timeout = std::time::Duration::ZERO;
    assert_eq!(wrong(WebhookOptions { total_timeout, ..fine() }), Some(WebhookError::Zero("total_timeout")));
}

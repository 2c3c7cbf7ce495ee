use std::fmt;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use tidegate_domain::{Claim, Headers, InvalidHeader, Timestamp};

use super::WebhookError;
use super::signature::Signer;
use super::target::Target;

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const TIDEGATE_ATTEMPT: HeaderName = HeaderName::from_static("tidegate-attempt");
const TIDEGATE_QUEUE: HeaderName = HeaderName::from_static("tidegate-queue");
const TIDEGATE_RECIPIENT: HeaderName = HeaderName::from_static("tidegate-recipient");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const OWN_HEADERS: usize = 10;
const AGENT: &str = concat!("tidegate/", env!("CARGO_PKG_VERSION"));

/// A recipient is any text; a header's value is ASCII wherever it is sure to be understood.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// Makes the requests of one channel. What is the same in all of them is prepared once.
#[derive(Clone)]
pub struct Requests {
    uri: Uri,
    host: HeaderValue,
    fixed: Vec<(HeaderName, HeaderValue)>,
    signer: Signer,
}

impl Requests {
    pub fn new(
        target: &Target,
        headers: &[(String, String)],
        secrets: &[String],
    ) -> Result<Self, WebhookError> {
        let wrong = |error: InvalidHeader| WebhookError::Header(error.to_string());
        Headers(headers.to_vec()).check().map_err(wrong)?;
        let mut fixed = Vec::with_capacity(headers.len());
        for (name, value) in headers {
            let (name, mut value) = header(name, value).map_err(wrong)?;
            // Whatever it is, a dump of it is nobody's business.
            value.set_sensitive(true);
            fixed.push((name, value));
        }
        let signer = Signer::new(secrets).map_err(WebhookError::Secret)?;
        Ok(Self { uri: target.uri.clone(), host: target.authority.clone(), fixed, signer })
    }

    /// An error means that the message can never be sent.
    pub fn request(
        &self,
        claim: &Claim,
        body: &Bytes,
        now: Timestamp,
    ) -> Result<Request<Full<Bytes>>, InvalidHeader> {
        let mut headers = self.headers(&claim.headers, "application/octet-stream")?;
        self.sign(&mut headers, claim.id.to_string(), body, now);
        headers.insert(TIDEGATE_ATTEMPT, HeaderValue::from(claim.attempt));
        insert(&mut headers, IDEMPOTENCY_KEY, claim.headers.key_of(claim.id));
        insert(&mut headers, TIDEGATE_QUEUE, claim.queue.as_str().to_owned());
        if let Some(recipient) = &claim.recipient {
            let recipient = utf8_percent_encode(recipient.as_str(), ESCAPED).to_string();
            insert(&mut headers, TIDEGATE_RECIPIENT, recipient);
        }
        Ok(self.post(headers, body))
    }

    /// What the gateway itself has to say, signed like a message.
    pub fn notice(
        &self,
        id: &str,
        json: &Bytes,
        now: Timestamp,
    ) -> Result<Request<Full<Bytes>>, InvalidHeader> {
        let mut headers = self.headers(&Headers::default(), "application/json")?;
        self.sign(&mut headers, id.to_owned(), json, now);
        Ok(self.post(headers, json))
    }

    /// A message's headers first, then ours: later ones win.
    fn headers(&self, travelling: &Headers, kind: &'static str) -> Result<HeaderMap, InvalidHeader> {
        let travelling = travelling.given();
        travelling.check()?;
        let mut headers = HeaderMap::with_capacity(travelling.0.len() + self.fixed.len() + OWN_HEADERS);
        headers.insert(HOST, self.host.clone());
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        for (name, value) in &travelling.0 {
            let (name, value) = header(name, value)?;
            headers.insert(name, value);
        }
        for (name, value) in &self.fixed {
            headers.insert(name, value.clone());
        }
        Ok(headers)
    }

    fn sign(&self, headers: &mut HeaderMap, id: String, body: &Bytes, now: Timestamp) {
        let timestamp = now.millis().div_euclid(1_000).to_string();
        if let Some(signature) = self.signer.sign(&id, &timestamp, body) {
            headers.insert(WEBHOOK_SIGNATURE, signature);
        }
        insert(headers, WEBHOOK_ID, id);
        insert(headers, WEBHOOK_TIMESTAMP, timestamp);
    }

    fn post(&self, headers: HeaderMap, body: &Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = headers;
        request
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests")
            .field("host", &self.host)
            .field("fixed", &self.fixed)
            .field("signer", &self.signer)
            .finish_non_exhaustive()
    }
}

/// The texts are ours and made of ASCII: none of them is refused.
fn insert(headers: &mut HeaderMap, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

pub fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), InvalidHeader> {
    let wrong = |wrong| InvalidHeader { name: name.to_owned(), wrong };
    let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong("is not a name"))?;
    let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| wrong("its value is none"))?;
    Ok((header, value))
}

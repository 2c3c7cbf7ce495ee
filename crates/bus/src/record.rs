use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use tidegate_domain::{Claim, Headers, Lane, MessageId, QueueName, Recipient, Timestamp, UserId};

pub const CONTENT_TYPE: &str = "application/json";
/// More than a caller's key with its place in a batch has.
const KEY_BYTES_MAX: usize = 300;

/// A claimed message as it travels. Fields may be added; a reader ignores what it does not know.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    id: String,
    queue: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    user_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    recipient: Option<String>,
    lane: String,
    /// The text, or its bytes when they are none, or neither: then the record would have been too large.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    message_base64: Option<String>,
    /// Lets a receiver drop repetitions: the message's id, unless its caller gave it a key, or its content did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    idempotency_key: Option<String>,
    /// Counts from 1 over the message's whole life.
    attempt: u32,
    failures: u32,
    ack_attempts: u32,
    ack_required: bool,
    /// The fencing token, as text: not every reader's numbers have 64 bits.
    token: String,
    /// When the record is void, unless somebody has begun.
    lease_until: String,
    admitted_at: String,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    headers: Vec<Header>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    name: String,
    value: String,
}

/// Why a record can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed(pub String);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text stays out of a record that would be larger than `bytes_max` with it: whoever begins asks the ledger for it.
pub fn encode(claim: &Claim, bytes_max: usize) -> Vec<u8> {
    let whole = write(claim, claim.body.as_ref());
    if whole.len() <= bytes_max { whole } else { write(claim, None) }
}

fn write(claim: &Claim, body: Option<&Bytes>) -> Vec<u8> {
    let text = body.and_then(|body| std::str::from_utf8(body).ok());
    let bytes = body.filter(|_| text.is_none());
    let record = Record {
        id: claim.id.to_string(),
        queue: claim.queue.to_string(),
        user_id: claim.user.as_ref().map(UserId::to_string),
        recipient: claim.recipient.as_ref().map(Recipient::to_string),
        lane: claim.lane.as_str().to_owned(),
        message: text.map(str::to_owned),
        message_base64: bytes.map(|bytes| STANDARD.encode(bytes)),
        idempotency_key: Some(claim.headers.key_of(claim.id)),
        attempt: claim.attempt,
        failures: claim.failures,
        ack_attempts: claim.ack_attempts,
        ack_required: claim.ack_required,
        token: claim.token.to_string(),
        lease_until: time(claim.lease_until),
        admitted_at: time(claim.admitted_at),
        headers: (claim.headers.given().0.iter())
            .map(|(name, value)| Header { name: name.clone(), value: value.clone() })
            .collect(),
    };
    serde_json::to_vec(&record).unwrap_or_default()
}

/// What is wrong is told by the field, never by what it holds: that is a message, and this goes to a log.
pub fn decode(bytes: &[u8]) -> Result<Claim, Malformed> {
    let record: Record = serde_json::from_slice(bytes).map_err(|error| not_a_record(&error))?;
    let body = match (record.message, record.message_base64) {
        (Some(text), None) => Some(Bytes::from(text)),
        (None, Some(bytes)) => {
            Some(Bytes::from(STANDARD.decode(&bytes).map_err(|_| wrong("messageBase64"))?))
        }
        (None, None) => None,
        (Some(_), Some(_)) => {
            return Err(Malformed("message and messageBase64 exclude each other".to_owned()));
        }
    };
    let mut headers = Headers(record.headers.into_iter().map(|header| (header.name, header.value)).collect());
    headers.check().map_err(|_| wrong("headers"))?;
    if let Some(key) = record.idempotency_key.filter(|key| *key != record.id) {
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong("idempotencyKey"));
        }
        headers.set_key(key);
    }
    let (recipient, user) = (record.recipient.as_deref(), record.user_id.as_deref());
    Ok(Claim {
        id: record.id.parse::<MessageId>().map_err(|_| wrong("id"))?,
        queue: QueueName::new(&record.queue).map_err(|_| wrong("queue"))?,
        recipient: recipient.map(Recipient::new).transpose().map_err(|_| wrong("recipient"))?,
        lane: record.lane.parse::<Lane>().map_err(|_| wrong("lane"))?,
        user: user.map(UserId::new).transpose().map_err(|_| wrong("userId"))?,
        admitted_at: instant(&record.admitted_at).ok_or_else(|| wrong("admittedAt"))?,
        attempt: record.attempt,
        failures: record.failures,
        ack_attempts: record.ack_attempts,
        ack_required: record.ack_required,
        headers,
        token: record.token.parse().map_err(|_| wrong("token"))?,
        lease_until: instant(&record.lease_until).ok_or_else(|| wrong("leaseUntil"))?,
        body,
    })
}

fn wrong(field: &str) -> Malformed {
    Malformed(format!("{field} makes no sense"))
}

fn not_a_record(error: &serde_json::Error) -> Malformed {
    let what = match error.classify() {
        Category::Data => "JSON, but no record",
        Category::Syntax | Category::Eof | Category::Io => "no JSON",
    };
    Malformed(format!("{what}, at line {}, column {}", error.line(), error.column()))
}

/// What a record is ordered by on the bus: its recipient, or nothing but itself.
pub fn key(claim: &Claim) -> String {
    claim.recipient.as_ref().map_or_else(|| claim.id.to_string(), Recipient::to_string)
}

/// The W3C trace that a record belongs to: its message's own, or one that is named after the message.
pub fn traceparent(claim: &Claim) -> String {
    let own = claim.headers.0.iter().find(|(name, _)| name.eq_ignore_ascii_case("traceparent"));
    own.map_or_else(
        || format!("00-{}-{:016x}-01", claim.id.to_string().replace('-', ""), claim.token.max(1)),
        |(_, value)| value.clone(),
    )
}

fn time(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.millis()).unwrap_or(jiff::Timestamp::MAX).to_string()
}

fn instant(text: &str) -> Option<Timestamp> {
    let at: jiff::Timestamp = text.parse().ok()?;
    Some(Timestamp::from_millis(at.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: usize = 1_000_000;

    fn claim() -> Claim {
        Claim {
            id: MessageId::new(Timestamp::from_millis(1_763_244_000_123), 42, 7),
            queue: QueueName::new("sms").unwrap(),
            recipient: Some(Recipient::new("+49 170").unwrap()),
            lane: Lane::High,
            user: Some(UserId::new("1001").unwrap()),
            admitted_at: Timestamp::from_millis(1_763_244_000_123),
            attempt: 2,
            failures: 1,
            ack_attempts: 0,
            ack_required: true,
            headers: Headers(vec![("X-Kind".into(), "otp".into())]),
            token: u64::MAX,
            lease_until: Timestamp::from_millis(1_763_244_030_000),
            body: Some(Bytes::from_static("häl\"lo\n".as_bytes())),
        }
    }

    #[test]
    fn what_is_published_is_what_is_received() {
        let mut claim = claim();
        assert_eq!(decode(&encode(&claim, LARGE)), Ok(claim.clone()));
        claim.body = Some(Bytes::from_static(&[0, 159, 255]));
        (claim.recipient, claim.user) = (None, None);
        claim.headers = Headers::default();
        assert_eq!(decode(&encode(&claim, LARGE)), Ok(claim.clone()));
    }

    #[test]
    fn a_record_that_would_be_too_large_travels_without_its_text() {
        let mut claim = claim();
        claim.body = Some(Bytes::from(vec![1; 1_000]));
        let bytes = encode(&claim, 2_000);
        assert!(bytes.len() < 600, "{}", bytes.len());
        assert_eq!(decode(&bytes), Ok(Claim { body: None, ..claim.clone() }));
        claim.body = Some(Bytes::from(vec![b'a'; 1_000]));
        assert_eq!(decode(&encode(&claim, 2_000)), Ok(claim));
    }

    #[test]
    fn a_foreign_reader_finds_the_fields_that_the_readme_names() {
        let text = String::from_utf8(encode(&claim(), LARGE)).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["userId"], "1001");
        assert_eq!(value["message"], "häl\"lo\n");
        assert_eq!(value["lane"], "high");
        assert_eq!(value["token"], u64::MAX.to_string());
        assert_eq!(value["leaseUntil"], "2025-11-15T22:00:30Z");
        assert_eq!(value["headers"][0]["name"], "X-Kind");
        assert_eq!(value["attempt"], 2);
    }

    #[test]
    fn what_is_added_later_is_ignored_and_nonsense_is_named() {
        let mut value: serde_json::Value = serde_json::from_slice(&encode(&claim(), LARGE)).unwrap();
        value["later"] = true.into();
        assert_eq!(decode(&serde_json::to_vec(&value).unwrap()), Ok(claim()));
        for (field, wrong) in
            [("id", "x"), ("lane", "vip"), ("token", "-1"), ("leaseUntil", "now"), ("queue", "")]
        {
            let mut value = value.clone();
            value[field] = wrong.into();
            let error = decode(&serde_json::to_vec(&value).unwrap()).unwrap_err();
            assert!(error.0.contains(field), "{error}");
        }
        for wrong in
            [&b""[..], b"SMS SENT", b"{}", b"[1]", b"\xff", b"{\"id\":\"secret\",\"lane\":\"secret\"}"]
        {
            let error = decode(wrong).unwrap_err();
            assert!(!error.0.contains("se") && !error.0.contains("SMS"), "{error}");
        }
        value["attempt"] = "secret".into();
        assert_eq!(
            decode(&serde_json::to_vec(&value).unwrap()).unwrap_err().0.split(',').next(),
            Some("JSON")
        );
    }

    #[test]
    fn a_record_names_its_messages_key() {
        let mut claim = claim();
        let key = |claim: &Claim| {
            let value: serde_json::Value = serde_json::from_slice(&encode(claim, LARGE)).unwrap();
            (value["idempotencyKey"].clone(), value["headers"].as_array().map_or(0, Vec::len))
        };
        let headers = claim.headers.0.len();
        assert_eq!(key(&claim), (claim.id.to_string().into(), headers));
        claim.headers.set_key("k-1".to_owned());
        assert_eq!(key(&claim), ("k-1".into(), headers), "and it is no header");
        assert_eq!(decode(&encode(&claim, LARGE)), Ok(claim.clone()));
        claim.headers.set_key("\u{202e}".to_owned());
        assert_eq!(decode(&encode(&claim, LARGE)).unwrap_err().0, "idempotencyKey makes no sense");
    }

    #[test]
    fn a_trace_is_the_messages_own_or_bears_its_name() {
        let mut claim = claim();
        let made = traceparent(&claim);
        assert_eq!(made.len(), 55);
        assert!(made.contains(&claim.id.to_string().replace('-', "")), "{made}");
        let own = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        claim.headers.0.push(("Traceparent".into(), own.into()));
        assert_eq!(traceparent(&claim), own);
        assert_eq!(key(&claim), "+49 170");
    }
}

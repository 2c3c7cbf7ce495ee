use http::HeaderMap;
use tidegate_domain::{
    CONTENT_KEY, Fingerprint, Idempotency, IdempotencyKey, MessageId, QueueName, Recipient, Timestamp,
};

use super::Gateway;
use super::answer::iso;
use crate::config::Dedup;

const HEADER: &str = "idempotency-key";
pub const REPLAY: &str = "idempotent-replay";
/// No principal is called so.
const NO_CALLER: &str = "\n";

/// As it is named among wrong fields.
pub const HEADER_NAME: &str = "Idempotency-Key";

/// The header's key: at most one, 1 to 255 visible characters.
pub fn header_key(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err("is given more than once");
    }
    checked(value.to_str().unwrap_or_default()).map(|key| Some(key.to_owned()))
}

/// The same rule for a key in a body.
pub fn checked(text: &str) -> Result<&str, &'static str> {
    let fits = (1..=IdempotencyKey::TEXT_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic());
    if fits { Ok(text) } else { Err("must be 1 to 255 visible ASCII characters") }
}

/// What a message's key is made of, beside the request that it stands for.
#[derive(Debug, Clone, Copy)]
pub struct Keyed<'a> {
    pub caller: &'a str,
    /// The caller's, if it gave one. In a batch one key is one for each place, `KEY/PLACE`: the very key that is shown, so that
    /// no provider is sent it for two messages.
    pub key: Option<&'a str>,
    pub queue: &'a QueueName,
    pub recipient: Option<&'a Recipient>,
    pub body: &'a [u8],
}

impl Keyed<'_> {
    /// The key as it is shown, and as it is remembered: the caller's, or where the queue says `dedup = "content"`, one made
    /// from recipient and body, for all callers alike. `None`: the message's id is its key.
    pub fn idempotency(
        &self,
        gateway: &Gateway,
        request: impl FnOnce() -> Fingerprint,
    ) -> Option<(String, Idempotency)> {
        if let Some(key) = self.key {
            let key_hash = IdempotencyKey::new(self.caller, key);
            let idempotency = Idempotency { key: key_hash, fingerprint: request() };
            return Some((key.to_owned(), idempotency));
        }
        if gateway.queue_settings.of(self.queue).dedup == Dedup::Off {
            return None;
        }
        let recipient = self.recipient.map_or("", |recipient| recipient.as_str());
        let content = Fingerprint::of(&[recipient.as_bytes(), self.body]).0;
        let digits = content.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        let shown = format!("{CONTENT_KEY}{digits}");
        let key = IdempotencyKey::new(NO_CALLER, &format!("{}\n{shown}", self.queue));
        // However it is asked for again, it is the same text for the same recipient.
        Some((shown, Idempotency { key, fingerprint: Fingerprint::of(&[]) }))
    }
}

/// Every duplicate is told: which message it repeats, and when that came.
pub fn note_duplicate(id: MessageId, at: Timestamp) {
    metrics::counter!("tidegate_duplicates_total").increment(1);
    tracing::info!(message_id = %id, first_at = iso(at), "duplicate request: its idempotency key was used before");
}

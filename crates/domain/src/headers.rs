use crate::{Headers, MessageId};

/// Why a header may not travel with a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("header {name:?}: {wrong}")]
pub struct InvalidHeader {
    pub name: String,
    pub wrong: &'static str,
}

/// They belong to a connection or to the framing of a request, not to what is told.
const RESERVED: [&str; 14] = [
    "connection",
    "content-length",
    "expect",
    "host",
    KEY,
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "trailers",
    "transfer-encoding",
    "upgrade",
];

/// A message's idempotency key travels among its headers, wherever they go. Callers can't give it as one of theirs.
const KEY: &str = "idempotency-key";

/// How keys begin that were made from their messages' content.
pub const CONTENT_KEY: &str = "content-";

/// What Tidegate says itself, and what nobody else may say in its name.
const RESERVED_PREFIXES: [&str; 2] = ["tidegate-", "webhook-"];

impl Headers {
    pub fn set_key(&mut self, key: String) {
        self.0.retain(|(name, _)| name != KEY);
        self.0.push((KEY.to_owned(), key));
    }

    /// The idempotency key that came with the message, or was made from its content.
    pub fn key(&self) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == KEY).map(|(_, key)| key.as_str())
    }

    /// Every message has a key: one that came without is its only one of that id.
    pub fn key_of(&self, id: MessageId) -> String {
        self.key().map_or_else(|| id.to_string(), str::to_owned)
    }

    /// The caller's own.
    pub fn given(&self) -> Self {
        Self(self.0.iter().filter(|(name, _)| name != KEY).cloned().collect())
    }

    /// What is left of them when their message is deleted: the caller's key. A key made from the content is a digest of
    /// it, by which a short text could be guessed, so it goes with the content.
    pub fn erased(&self) -> Self {
        let kept = |(name, key): &&(String, String)| name == KEY && !key.starts_with(CONTENT_KEY);
        Self(self.0.iter().filter(kept).cloned().collect())
    }

    pub const COUNT_MAX: usize = 32;
    /// Of all names and values together.
    pub const BYTES_MAX: usize = 8 * 1024;

    /// Whether these may travel with a message: one rule, for admission and for every channel.
    pub fn check(&self) -> Result<(), InvalidHeader> {
        let wrong = |name: &str, wrong| Err(InvalidHeader { name: excerpt(name), wrong });
        if self.0.len() > Self::COUNT_MAX {
            return wrong("", "there may be 32 at most");
        }
        let mut bytes = 0;
        for (name, value) in &self.0 {
            bytes += name.len() + value.len();
            if let Some(problem) = problem(name, value) {
                return wrong(name, problem);
            }
        }
        if bytes > Self::BYTES_MAX { wrong("", "names and values may be 8 KiB at most") } else { Ok(()) }
    }
}

fn problem(name: &str, value: &str) -> Option<&'static str> {
    if name.is_empty() || !name.bytes().all(is_token) {
        return Some("a name is letters, digits and !#$%&'*+-.^_`|~");
    }
    let reserved = RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved));
    if reserved || RESERVED_PREFIXES.iter().any(|prefix| begins_with(name, prefix)) {
        return Some("the name is reserved");
    }
    // A line break in a value would be another header.
    value.chars().any(|c| c.is_control() && c != '\t').then_some("a value holds no control characters")
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn begins_with(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Names come from callers: an error doesn't repeat more than a line of one.
fn excerpt(name: &str) -> String {
    name.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(name: &str, value: &str) -> Option<&'static str> {
        Headers(vec![(name.to_owned(), value.to_owned())]).check().err().map(|error| error.wrong)
    }

    #[test]
    fn headers_that_tell_something_travel() {
        for (name, value) in [
            ("Content-Type", "application/json"),
            ("x-trace", "a\tb"),
            ("subject", "Grüße"),
            ("authorization", ""),
            ("webhook", "x"),
        ] {
            assert_eq!(wrong(name, value), None, "{name}");
        }
    }

    #[test]
    fn headers_of_the_connection_or_in_our_name_do_not() {
        for name in
            RESERVED.into_iter().chain(["Host", "TE", "Webhook-Id", "webhook-signature", "TIDEGATE-x"])
        {
            assert_eq!(wrong(name, "x"), Some("the name is reserved"), "{name}");
        }
    }

    #[test]
    fn no_header_can_make_another() {
        for value in ["a\r\nhost: evil", "a\nb", "a\rb", "\0", "\u{7f}", "\u{85}"] {
            assert_eq!(wrong("x", value), Some("a value holds no control characters"), "{value:?}");
        }
        for name in ["", "a b", "a:b", "a\r\nb", "ü", "a\0"] {
            assert!(wrong(name, "x").is_some(), "{name:?}");
        }
    }

    #[test]
    fn there_is_a_bound_on_all_of_them() {
        let many = Headers(vec![("x".to_owned(), String::new()); Headers::COUNT_MAX + 1]);
        assert!(many.check().is_err());
        assert!(wrong("x", &"y".repeat(Headers::BYTES_MAX)).is_some());
        assert_eq!(wrong("x", &"y".repeat(Headers::BYTES_MAX - 1)), None);
        assert_eq!(Headers(vec![(" ".repeat(9_999), String::new())]).check().unwrap_err().name.len(), 64);
    }

    #[test]
    fn a_messages_key_travels_apart_from_what_its_caller_gave() {
        let id = MessageId::new(crate::Timestamp::from_millis(0), 7, 1);
        let mut headers = Headers(vec![("a".to_owned(), "b".to_owned())]);
        assert_eq!((headers.key(), headers.key_of(id)), (None, id.to_string()));
        headers.set_key("k1".to_owned());
        headers.set_key("k2".to_owned());
        assert_eq!((headers.key(), headers.key_of(id)), (Some("k2"), "k2".to_owned()));
        assert_eq!(headers.given(), Headers(vec![("a".to_owned(), "b".to_owned())]));
        assert!(
            headers.given().check().is_ok() && headers.check().is_err(),
            "callers cannot give it as a header"
        );
        assert_eq!(headers.erased(), Headers(vec![(KEY.to_owned(), "k2".to_owned())]));
        headers.set_key(format!("{CONTENT_KEY}0123"));
        assert_eq!(headers.erased(), Headers::default(), "a digest of the content goes with it");
    }
}

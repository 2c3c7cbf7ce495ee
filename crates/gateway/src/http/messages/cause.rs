use std::borrow::Cow;

/// The kind of a failure: what those who are not admins get to see of its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The provider answered with this status.
    Http(u16),
    Kind(&'static str),
}

/// What the reasons of this gateway's own parts say, most telling first, and the kind that it means.
const KINDS: [(&str, &str); 16] = [
    ("never acknowledged", "not_acknowledged"),
    ("damaged on disk", "damaged"),
    ("never ended", "interrupted"),
    ("ended unsettled", "interrupted"),
    ("cut off when", "interrupted"),
    ("the channel failed", "interrupted"),
    ("onnection refused", "connection_refused"),
    ("no answer within", "timeout"),
    ("no connection within", "timeout"),
    ("in its share of the time", "timeout"),
    ("cannot look up", "unknown_host"),
    ("has no address", "unknown_host"),
    ("not on the public internet", "forbidden_address"),
    ("TLS: ", "tls"),
    ("cannot connect to", "connection_failed"),
    ("header \"", "invalid_header"),
];

impl Cause {
    pub fn of(reason: &str) -> Self {
        // "gave up after 3 attempts: 500 Internal Server Error: no ink"
        let last = reason.strip_prefix("gave up after ").and_then(|rest| rest.split_once(": "));
        let text = last.map_or(reason, |(_, text)| text);
        if let Some(status) = text.get(..3).and_then(|digits| digits.parse::<u16>().ok())
            && (300..=599).contains(&status)
            && text[3..].chars().next().is_none_or(|next| " :".contains(next))
        {
            // Whatever the provider said after it.
            return Self::Http(status);
        }
        let known = KINDS.iter().find(|(words, _)| text.contains(words));
        Self::Kind(known.map_or("failed", |(_, kind)| kind))
    }

    pub fn text(self) -> Cow<'static, str> {
        match self {
            Self::Http(status) => format!("http_{status}").into(),
            Self::Kind(kind) => kind.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_reason_only_its_kind_is_left() {
        for (reason, kind) in [
            ("500 Internal Server Error: secret ink at 10.0.0.7", "http_500"),
            ("gave up after 3 attempts: 503 Service Unavailable: Connection refused", "http_503"),
            ("gave up after 1 attempt: 502 Bad Gateway", "http_502"),
            ("599", "http_599"),
            ("302 Found: redirects are not followed, not to http://inside.example/", "http_302"),
            ("no answer within 400 ms", "timeout"),
            ("cannot connect to 10.0.0.7:443: Connection refused (os error 111)", "connection_refused"),
            ("cannot connect to 10.0.0.7:443: No route to host", "connection_failed"),
            ("cannot look up hook.example: failed to look up", "unknown_host"),
            ("10.0.0.7 is not on the public internet, and no allowed network holds it", "forbidden_address"),
            ("TLS: invalid peer certificate", "tls"),
            ("never acknowledged: delivered 2 times without an ack", "not_acknowledged"),
            ("gave up after 2 attempts: the last one never ended", "interrupted"),
            ("no ink", "failed"),
            ("5000 things", "failed"),
            ("50é", "failed"),
            ("", "failed"),
        ] {
            assert_eq!(Cause::of(reason).text(), kind, "{reason}");
        }
    }
}

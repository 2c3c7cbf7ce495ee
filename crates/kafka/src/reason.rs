//! What a client says of a connection that failed, in words that name no setting of its own.

use crate::tls::Tls;

/// How we speak to brokers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    Off,
    /// Over TLS; with a certificate of our own, or without.
    On {
        identity: bool,
    },
}

/// Of the client, of OpenSSL, or of both their versions.
const UNTRUSTED: [&str; 3] =
    ["certificate verify failed", "Failed to verify broker certificate", "did not provide a certificate"];
const NOT_TLS: [&str; 3] = ["PLAINTEXT broker listener", "wrong version number", "packet length too long"];
/// What brokers answer with to a client that shows no certificate, according to the version of TLS and of Java.
const NONE_SHOWN: [&str; 2] = ["alert bad certificate", "alert certificate required"];
const NOT_ACCEPTED: [&str; 4] = [
    "alert certificate unknown",
    "alert unknown ca",
    "alert certificate expired",
    "alert unsupported certificate",
];

impl Encryption {
    pub fn of(tls: Option<&Tls>) -> Self {
        tls.map_or(Self::Off, |tls| Self::On { identity: tls.identity.is_some() })
    }

    /// What is wrong, if that can be told from what the client says.
    pub fn explain(self, reason: &str) -> Option<String> {
        let Self::On { identity } = self else { return None };
        let says = |parts: &[&str]| parts.iter().any(|part| reason.contains(part));
        let what = if says(&UNTRUSTED) {
            "its certificate is not trusted: it is from an authority that is not trusted here, for another name, or \
             out of date"
        } else if says(&NOT_TLS) {
            "it seems not to speak TLS"
        } else if says(&NONE_SHOWN) && !identity {
            "it wants a certificate of this client, and there is none"
        } else if says(&NONE_SHOWN) || says(&NOT_ACCEPTED) {
            "it does not accept the certificate of this client"
        } else {
            return None;
        };
        Some(format!("{}: {what}", broker(reason)))
    }

    /// What may be wrong with a broker that closes the connection and does not say why.
    pub fn guess(self) -> &'static str {
        match self {
            Self::Off => "does this Kafka want another login, or TLS?",
            Self::On { .. } => "does this Kafka want another login?",
        }
    }
}

/// Without how long it took and how often it was said before: the same trouble has the same words, and is told once.
pub fn lasting(reason: &str) -> &str {
    reason.rsplit_once(" (after ").filter(|(_, rest)| rest.ends_with(')')).map_or(reason, |(text, _)| text)
}

/// `localhost:9092` of `ssl://localhost:9092/bootstrap: …`.
fn broker(reason: &str) -> &str {
    let name = reason.split_once(": ").map_or("a broker", |(name, _)| name);
    let name = name.split_once("://").map_or(name, |(_, name)| name);
    name.split_once('/').map_or(name, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: Encryption = Encryption::On { identity: true };
    const ANONYMOUS: Encryption = Encryption::On { identity: false };

    /// As librdkafka 2.12 and OpenSSL 3 say it.
    #[test]
    fn trouble_with_tls_is_told_in_plain_words() {
        let verify = "ssl://kafka:9093/bootstrap: SSL handshake failed: error:0A000086:SSL routines::certificate verify \
                      failed: broker certificate could not be verified, verify that ssl.ca.location is correctly \
                      configured";
        let plain = "sasl_ssl://kafka:9093/1: SSL handshake failed: Disconnected: SSL connection closed by peer: connecting \
                     to a PLAINTEXT broker listener?";
        let none = "ssl://kafka:9093/bootstrap: Receive failed: error:0A000412:SSL routines::sslv3 alert bad certificate: SSL \
                    alert number 42";
        let unknown = "ssl://kafka:9093/bootstrap: Receive failed: error:0A000416:SSL routines::sslv3 alert certificate \
                       unknown: SSL alert number 46";
        for (encryption, reason, told) in [
            (ANONYMOUS, verify, "its certificate is not trusted"),
            (ANONYMOUS, plain, "it seems not to speak TLS"),
            (ANONYMOUS, none, "it wants a certificate of this client, and there is none"),
            (SHOWN, none, "it does not accept the certificate of this client"),
            (SHOWN, unknown, "it does not accept the certificate of this client"),
        ] {
            let explained = encryption.explain(reason).unwrap_or_default();
            assert!(explained.starts_with(&format!("kafka:9093: {told}")), "{explained}");
            assert!(!explained.contains("ssl."), "{explained}");
        }
        assert_eq!(SHOWN.explain("ssl://kafka:9093/1: Connect to ipv4#10.0.0.1:9093 failed"), None);
        assert_eq!(Encryption::Off.explain(verify), None);
    }

    #[test]
    fn the_same_trouble_has_the_same_words() {
        let first = "kafka:9092/1: Disconnected (after 5ms in state UP)";
        let again = "kafka:9092/1: Disconnected (after 71ms in state UP, 1 identical error(s) suppressed)";
        assert_eq!(
            (lasting(first), lasting(again)),
            ("kafka:9092/1: Disconnected", "kafka:9092/1: Disconnected")
        );
        assert_eq!(lasting("Connection refused (after a while"), "Connection refused (after a while");
    }
}

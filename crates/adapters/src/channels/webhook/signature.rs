use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderValue;
use sha2::Sha256;

/// Signs in the Standard Webhooks scheme: `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`, once per
/// secret, so that receivers may change theirs whenever they like while two are in force.
#[derive(Clone)]
pub struct Signer {
    /// Keyed already: a signature then costs the body's blocks alone.
    keyed: Vec<Hmac<Sha256>>,
}

const PREFIX: &str = "whsec_";
const SIGNATURE_BYTES: usize = "v1,".len() + 44 + 1;
/// As the scheme has it.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

impl Signer {
    /// From `whsec_…` texts; the error says what is wrong without repeating them.
    pub fn new(secrets: &[String]) -> Result<Self, &'static str> {
        Ok(Self { keyed: secrets.iter().map(|secret| keyed(secret)).collect::<Result<_, _>>()? })
    }

    /// The header's value; none without secrets.
    pub fn sign(&self, id: &str, timestamp: &str, body: &[u8]) -> Option<HeaderValue> {
        if self.keyed.is_empty() {
            return None;
        }
        let mut text = String::with_capacity(self.keyed.len() * SIGNATURE_BYTES);
        for keyed in &self.keyed {
            text.push_str(if text.is_empty() { "v1," } else { " v1," });
            STANDARD.encode_string(mac(keyed, id, timestamp, body).finalize().into_bytes(), &mut text);
        }
        HeaderValue::try_from(text).ok()
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer({} secrets)", self.keyed.len())
    }
}

/// Whether one of a header's signatures was made with this secret: what a receiver does, for tests and tools.
/// Takes the same time wherever a signature differs.
pub fn verify(secret: &str, id: &str, timestamp: &str, body: &[u8], signatures: &str) -> bool {
    let Ok(keyed) = keyed(secret) else { return false };
    let signatures = signatures.split(' ').filter_map(|signature| signature.strip_prefix("v1,"));
    signatures
        .filter_map(|signature| STANDARD.decode(signature).ok())
        .any(|signature| mac(&keyed, id, timestamp, body).verify_slice(&signature).is_ok())
}

fn mac(keyed: &Hmac<Sha256>, id: &str, timestamp: &str, body: &[u8]) -> Hmac<Sha256> {
    let mut mac = keyed.clone();
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        mac.update(part);
    }
    mac
}

fn keyed(secret: &str) -> Result<Hmac<Sha256>, &'static str> {
    const WRONG: &str = "must be whsec_ and the base64 of 24 to 64 random bytes";
    let key = STANDARD.decode(secret.strip_prefix(PREFIX).ok_or(WRONG)?).map_err(|_| WRONG)?;
    if !KEY_BYTES.contains(&key.len()) {
        return Err(WRONG);
    }
    Hmac::new_from_slice(&key).map_err(|_| WRONG)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const TIMESTAMP: &str = "1614265330";
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    /// Published with the scheme.
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    fn sign(secrets: &[&str]) -> String {
        let secrets: Vec<_> = secrets.iter().map(|secret| (*secret).to_owned()).collect();
        let value = Signer::new(&secrets).unwrap().sign(ID, TIMESTAMP, BODY).unwrap();
        value.to_str().unwrap().to_owned()
    }

    #[test]
    fn the_published_vector_is_reproduced() {
        assert_eq!(sign(&[SECRET]), SIGNATURE);
        assert!(verify(SECRET, ID, TIMESTAMP, BODY, SIGNATURE));
    }

    #[test]
    fn while_rotating_each_secret_signs() {
        let other = format!("whsec_{}", STANDARD.encode([7; 32]));
        let both = sign(&[&other, SECRET]);
        assert!(both.ends_with(SIGNATURE) && both.split(' ').count() == 2, "{both}");
        assert!(verify(SECRET, ID, TIMESTAMP, BODY, &both) && verify(&other, ID, TIMESTAMP, BODY, &both));
    }

    #[test]
    fn what_was_changed_does_not_verify() {
        assert!(!verify(SECRET, "msg_other", TIMESTAMP, BODY, SIGNATURE));
        assert!(!verify(SECRET, ID, "1614265331", BODY, SIGNATURE));
        assert!(!verify(SECRET, ID, TIMESTAMP, b"{}", SIGNATURE));
        for signatures in ["", "v1,", "v1,AAAA", "v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", "v1"] {
            assert!(!verify(SECRET, ID, TIMESTAMP, BODY, signatures), "{signatures}");
        }
    }

    #[test]
    fn bad_secrets_are_named_and_not_repeated() {
        for secret in ["", "whsec_", "whsec_!!", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_c2hvcnQ="] {
            assert!(Signer::new(&[secret.to_owned()]).is_err(), "{secret}");
        }
        let signer = Signer::new(&[SECRET.to_owned()]).unwrap();
        assert_eq!(format!("{signer:?}"), "Signer(1 secrets)");
        assert!(Signer::new(&[]).unwrap().sign(ID, TIMESTAMP, BODY).is_none());
    }
}

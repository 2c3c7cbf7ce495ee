use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tidegate_domain::Recipient;

use super::InboxError;

const SECRET_BYTES_MIN: usize = 16;

/// Tokens that nobody has to store: base64url of HMAC-SHA256 over the recipient.
pub struct Tokens {
    keyed: Vec<Hmac<Sha256>>,
}

impl Tokens {
    pub fn new(secrets: &[String]) -> Result<Self, InboxError> {
        if secrets.is_empty() {
            return Err(InboxError::NoSecret);
        }
        let keyed = |secret: &String| match Hmac::new_from_slice(secret.as_bytes()) {
            Ok(keyed) if secret.len() >= SECRET_BYTES_MIN => Ok(keyed),
            _ => Err(InboxError::ShortSecret),
        };
        Ok(Self { keyed: secrets.iter().map(keyed).collect::<Result<_, _>>()? })
    }

    pub fn issue(&self, recipient: &Recipient) -> String {
        let token = self.keyed.first().map(|keyed| mac(keyed, recipient).finalize().into_bytes());
        token.map(|token| URL_SAFE_NO_PAD.encode(token)).unwrap_or_default()
    }

    /// Takes the same time wherever a token differs.
    pub fn verify(&self, recipient: &Recipient, token: &str) -> bool {
        let Ok(token) = URL_SAFE_NO_PAD.decode(token) else { return false };
        self.keyed.iter().any(|keyed| mac(keyed, recipient).verify_slice(&token).is_ok())
    }
}

fn mac(keyed: &Hmac<Sha256>, recipient: &Recipient) -> Hmac<Sha256> {
    let mut mac = keyed.clone();
    mac.update(recipient.as_str().as_bytes());
    mac
}

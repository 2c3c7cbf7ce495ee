use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Argon2, Params};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

pub(super) type Digest = [u8; 32];

pub(super) const API_KEY_PREFIX: &str = "tg_";

/// A configured hash that asks for more would let one login take the machine down.
const MEMORY_KIB_MAX: u32 = 256 * 1024;
const PASSES_MAX: u32 = 16;
const LANES_MAX: u32 = 16;

/// The argon2id PHC string of a password, with a random salt, for a [`crate::PrincipalSpec`].
pub fn hash_password(password: &[u8]) -> Result<String, String> {
    let hash = Argon2::default().hash_password(password).map_err(|error| error.to_string())?;
    Ok(hash.to_string())
}

/// A new API key, to be shown once, and the hash of it, to be configured.
pub fn new_api_key() -> Result<(String, String), String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| format!("no randomness: {error}"))?;
    let key = format!("{API_KEY_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
    let hash = hex(&sha256(key.as_bytes()));
    Ok((key, hash))
}

pub(super) fn hex(digest: &Digest) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    digest.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect()
}

/// A key has 256 random bits, so a fast hash of it is enough.
pub(super) fn sha256(bytes: &[u8]) -> Digest {
    Sha256::digest(bytes).into()
}

/// The length in front keeps ("ab", "c") and ("a", "bc") apart.
pub(super) fn keyed_digest(key: &[u8; 32], first: &[u8], second: &[u8]) -> Digest {
    let mut hasher = Sha256::new();
    hasher.update(key);
    hasher.update(first.len().to_le_bytes());
    hasher.update(first);
    hasher.update(second);
    hasher.finalize().into()
}

pub(super) fn is_password(password: &[u8], hash: &PasswordHash) -> bool {
    Argon2::default().verify_password(password, hash).is_ok()
}

pub(super) fn parse_password_hash(text: &str) -> Result<PasswordHash, String> {
    let wrong = "the password hash has to be an argon2id PHC string";
    let hash = PasswordHash::new(text).map_err(|_| wrong)?;
    let params = Params::try_from(&hash).map_err(|_| wrong)?;
    if hash.algorithm.as_str() != "argon2id" || hash.hash.is_none() || hash.salt.is_none() {
        return Err(wrong.into());
    }
    if params.m_cost() > MEMORY_KIB_MAX || params.t_cost() > PASSES_MAX || params.p_cost() > LANES_MAX {
        return Err(format!(
            "the password hash asks for more than {MEMORY_KIB_MAX} KiB of memory, {PASSES_MAX} passes or {LANES_MAX} lanes"
        ));
    }
    Ok(hash)
}

pub(super) fn parse_hex(text: &str) -> Option<Digest> {
    let text = text.as_bytes();
    if text.len() != 64 || !text.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let nibble = |b: u8| if b.is_ascii_digit() { b - b'0' } else { b - b'a' + 10 };
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(text.chunks_exact(2)) {
        *byte = nibble(pair[0]) << 4 | nibble(pair[1]);
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_matches_its_hash() {
        let (key, hash) = new_api_key().unwrap();
        assert_eq!((key.len(), &key[..3]), (46, "tg_"));
        assert_eq!(parse_hex(&hash), Some(sha256(key.as_bytes())));
    }

    #[test]
    fn a_hashed_password_verifies_and_another_does_not() {
        let hash = parse_password_hash(&hash_password("pässword".as_bytes()).unwrap()).unwrap();
        assert!(is_password("pässword".as_bytes(), &hash));
        assert!(!is_password(b"password", &hash));
    }

    #[test]
    fn digests_keep_name_and_password_apart() {
        let key = [7; 32];
        assert_ne!(keyed_digest(&key, b"ab", b"c"), keyed_digest(&key, b"a", b"bc"));
        assert_ne!(keyed_digest(&key, b"a", b"b"), keyed_digest(&[8; 32], b"a", b"b"));
    }
}

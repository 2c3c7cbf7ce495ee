use sha2::{Digest, Sha256};

/// A caller's idempotency key, hashed together with the caller: two callers never share a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdempotencyKey(pub [u8; 16]);

/// What the request said. The same key with another fingerprint is a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 16]);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idempotency {
    pub key: IdempotencyKey,
    pub fingerprint: Fingerprint,
}

impl IdempotencyKey {
    pub const TEXT_BYTES_MAX: usize = 255;

    pub fn new(caller: &str, key: &str) -> Self {
        Self(digest(&[caller.as_bytes(), key.as_bytes()]))
    }
}

impl Fingerprint {
    pub fn of(parts: &[&[u8]]) -> Self {
        Self(digest(parts))
    }
}

/// Each part is preceded by its length, so that `["ab", "c"]` and `["a", "bc"]` differ.
fn digest(parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let full = hasher.finalize();
    let mut short = [0; 16];
    short.copy_from_slice(&full[..16]);
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_callers_nor_parts_run_into_each_other() {
        assert_ne!(IdempotencyKey::new("ab", "c"), IdempotencyKey::new("a", "bc"));
        assert_ne!(Fingerprint::of(&[b"ab", b""]), Fingerprint::of(&[b"ab"]));
        assert_eq!(IdempotencyKey::new("a", "k"), IdempotencyKey::new("a", "k"));
    }
}

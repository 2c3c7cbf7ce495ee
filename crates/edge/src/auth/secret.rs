use argon2::password_hash::PasswordHasher;
use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Block, Params, Version};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

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

/// What is wrong with the hash of a password, without any of its text.
pub fn check_password_hash(text: &str) -> Result<(), String> {
    StoredPassword::parse(text).map(drop)
}

/// What a password is verified against.
#[derive(Clone)]
pub(super) struct StoredPassword {
    argon2: Argon2<'static>,
    salt: Box<[u8]>,
    expected: Box<[u8]>,
}

/// What argon2id works in, kept from one password to the next: a block of this size that is given back and taken again
/// by every check leaves an allocator with many of them.
#[derive(Default)]
pub(super) struct Memory(Vec<Block>);

impl StoredPassword {
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = "the password hash has to be an argon2id PHC string";
        let hash = PasswordHash::new(text).map_err(|_| wrong)?;
        let params = Params::try_from(&hash).map_err(|_| wrong)?;
        let version = hash.version.map_or(Ok(Version::default()), Version::try_from).map_err(|_| wrong)?;
        let (Some(salt), Some(expected)) = (&hash.salt, &hash.hash) else { return Err(wrong.into()) };
        if hash.algorithm.as_str() != "argon2id" {
            return Err(wrong.into());
        }
        if params.m_cost() > MEMORY_KIB_MAX || params.t_cost() > PASSES_MAX || params.p_cost() > LANES_MAX {
            return Err(format!(
                "the password hash asks for more than {MEMORY_KIB_MAX} KiB of memory, {PASSES_MAX} passes or {LANES_MAX} lanes"
            ));
        }
        let (salt, expected) = (Box::from(&**salt), Box::from(expected.as_bytes()));
        Ok(Self { argon2: Argon2::new(Algorithm::Argon2id, version, params), salt, expected })
    }

    pub fn is(&self, password: &[u8], memory: &mut Memory) -> bool {
        let blocks = self.argon2.params().block_count();
        if memory.0.len() < blocks {
            memory.0.reserve_exact(blocks - memory.0.len());
            memory.0.resize_with(blocks, Block::default);
        }
        let mut found = vec![0; self.expected.len()];
        let hashed = self.argon2.hash_password_into_with_memory(
            password,
            &self.salt,
            &mut found,
            &mut memory.0[..blocks],
        );
        hashed.is_ok() && bool::from(found.ct_eq(&self.expected))
    }
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
        let small = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";
        let stored = StoredPassword::parse(&hash_password("pässword".as_bytes()).unwrap()).unwrap();
        let mut memory = Memory::default();
        for _ in 0..2 {
            // A small one before and after: what another check has left in the memory does not matter.
            assert!(StoredPassword::parse(small).unwrap().is(b"password", &mut memory));
            assert!(stored.is("pässword".as_bytes(), &mut memory));
            assert!(!stored.is(b"password", &mut memory));
        }
        assert_eq!(memory.0.len(), 19 * 1_024, "of the largest");
    }

    #[test]
    fn digests_keep_name_and_password_apart() {
        let key = [7; 32];
        assert_ne!(keyed_digest(&key, b"ab", b"c"), keyed_digest(&key, b"a", b"bc"));
        assert_ne!(keyed_digest(&key, b"a", b"b"), keyed_digest(&[8; 32], b"a", b"b"));
    }
}

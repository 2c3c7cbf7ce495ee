use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use super::secret::{self, Digest, Memory, StoredPassword};

/// Who sent a request, once that is known; in the extensions of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub name: Arc<str>,
    pub role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    User,
    Admin,
}

/// A principal as configured.
#[derive(Clone)]
pub struct PrincipalSpec {
    pub name: String,
    pub role: Role,
    /// An argon2id PHC string: see [`super::hash_password`].
    pub password_hash: Option<String>,
    /// Lowercase hex SHA-256 of each key: see [`super::new_api_key`].
    pub api_key_hashes: Vec<String>,
}

/// Everyone who may use the gateway, with what proves it.
pub struct Principals {
    known: Vec<(Principal, Option<StoredPassword>)>,
    by_name: HashMap<Arc<str>, usize>,
    api_keys: Vec<(Digest, u32)>,
    /// What the password of an unknown user is verified against, so that it costs the same.
    decoy: Option<StoredPassword>,
    /// Random per process: digests of passwords mean nothing outside of it.
    digest_key: [u8; 32],
    verifications: AtomicU64,
    /// Paths below these are nobody's here: their handlers check credentials of their own.
    elsewhere: Vec<&'static str>,
}

impl Principals {
    /// Nobody is known, everybody is the local admin. For loopback only.
    pub fn none() -> Self {
        Self {
            known: Vec::new(),
            by_name: HashMap::new(),
            api_keys: Vec::new(),
            decoy: None,
            digest_key: [0; 32],
            verifications: AtomicU64::new(0),
            elsewhere: Vec::new(),
        }
    }

    /// Requests below `prefix` come from others than principals, and their handlers find out from whom.
    #[must_use]
    pub fn leaving(mut self, prefix: &'static str) -> Self {
        self.elsewhere.push(prefix);
        self
    }

    pub(super) fn leave(&self, path: &str) -> bool {
        self.elsewhere.iter().any(|prefix| path.starts_with(prefix))
    }

    pub fn new(specs: Vec<PrincipalSpec>) -> Result<Self, String> {
        let mut this = Self::none();
        for spec in specs {
            this.add(spec)?;
        }
        if !this.known.is_empty() {
            getrandom::fill(&mut this.digest_key).map_err(|error| format!("no randomness: {error}"))?;
            this.decoy = Some(this.decoy()?);
        }
        Ok(this)
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Without an early exit: how long it takes tells nothing about the keys.
    pub(super) fn by_api_key(&self, hash: &Digest) -> Option<&Principal> {
        let (mut found, mut index) = (Choice::from(0), 0);
        for (known, owner) in &self.api_keys {
            let same = known.ct_eq(hash);
            index.conditional_assign(owner, same);
            found |= same;
        }
        bool::from(found).then(|| self.known.get(index as usize).map(|(principal, _)| principal)).flatten()
    }

    /// Always runs argon2id once.
    pub(super) fn by_password(&self, user: &str, password: &[u8], memory: &mut Memory) -> Option<&Principal> {
        let known = self.by_name.get(user).and_then(|index| self.known.get(*index));
        match (known, self.decoy.as_ref()) {
            (Some((principal, Some(stored))), _) => {
                self.is_password(password, stored, memory).then_some(principal)
            }
            (_, Some(decoy)) => {
                self.is_password(password, decoy, memory);
                None
            }
            (_, None) => None,
        }
    }

    pub(super) fn verifications(&self) -> u64 {
        self.verifications.load(Ordering::Relaxed)
    }

    /// Counted where the work is done, so that a test sees whether an unknown user costs it too.
    fn is_password(&self, password: &[u8], stored: &StoredPassword, memory: &mut Memory) -> bool {
        self.verifications.fetch_add(1, Ordering::Relaxed);
        stored.is(password, memory)
    }

    /// Stands for a user name and a password where the password itself must not be kept.
    pub(super) fn digest(&self, user: &str, password: &[u8]) -> Digest {
        secret::keyed_digest(&self.digest_key, user.as_bytes(), password)
    }

    fn add(&mut self, spec: PrincipalSpec) -> Result<(), String> {
        let name = spec.name;
        let wrong = |what: &str| format!("principal {name:?}: {what}");
        if name.is_empty() || name.len() > 256 || name.contains(|c: char| c == ':' || c.is_control()) {
            return Err(wrong("the name has to be 1 to 256 bytes without colon or control characters"));
        }
        if spec.password_hash.is_none() && spec.api_key_hashes.is_empty() {
            return Err(wrong("needs a password hash or an API key hash"));
        }
        let hash = spec.password_hash.as_deref().map(StoredPassword::parse).transpose();
        let hash = hash.map_err(|error| wrong(&error))?;
        let index = u32::try_from(self.known.len()).map_err(|_| wrong("too many principals"))?;
        for text in &spec.api_key_hashes {
            let key = secret::parse_hex(text)
                .ok_or_else(|| wrong("an API key hash has to be 64 lowercase hex digits"))?;
            if self.api_keys.iter().any(|(other, _)| *other == key) {
                return Err(wrong("an API key hash stands twice"));
            }
            self.api_keys.push((key, index));
        }
        let principal = Principal { name: Arc::from(name.as_str()), role: spec.role };
        if self.by_name.insert(principal.name.clone(), self.known.len()).is_some() {
            return Err(wrong("stands twice"));
        }
        self.known.push((principal, hash));
        Ok(())
    }

    /// Somebody's own hash serves: it has the usual parameters, and its verdict is thrown away.
    fn decoy(&self) -> Result<StoredPassword, String> {
        match self.known.iter().find_map(|(_, hash)| hash.clone()) {
            Some(hash) => Ok(hash),
            None => StoredPassword::parse(&secret::hash_password(b"")?),
        }
    }
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "USER",
            Self::Admin => "ADMIN",
        }
    }
}

/// Names only: hashes have no place in a log.
impl fmt::Debug for Principals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.known.iter().map(|(principal, _)| principal)).finish()
    }
}

impl fmt::Debug for PrincipalSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrincipalSpec")
            .field("name", &self.name)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, key: &str) -> PrincipalSpec {
        PrincipalSpec {
            name: name.into(),
            role: Role::User,
            password_hash: None,
            api_key_hashes: vec![key.into()],
        }
    }

    fn refusal(specs: Vec<PrincipalSpec>) -> String {
        Principals::new(specs).unwrap_err()
    }

    #[test]
    fn half_configured_principals_are_refused() {
        let key = "a".repeat(64);
        assert!(refusal(vec![spec("a:b", &key)]).contains("colon"));
        assert!(refusal(vec![spec("a", "ABC")]).contains("64 lowercase hex"));
        assert!(refusal(vec![spec("a", &key), spec("b", &key)]).contains("twice"));
        assert!(refusal(vec![spec("a", &key), spec("a", &"b".repeat(64))]).contains("twice"));
        let bare = PrincipalSpec { api_key_hashes: Vec::new(), ..spec("a", "") };
        assert!(refusal(vec![bare.clone()]).contains("needs"));
        let hash = |hash: &str| PrincipalSpec { password_hash: Some(hash.into()), ..bare.clone() };
        assert!(refusal(vec![hash("plain")]).contains("argon2id"));
        let other = "$argon2i$v=19$m=19456,t=2,p=1$c29tZXNhbHQ$iWh06vD8Fy27wf9npn6FXWiCX4K6pW6Ue1Bnzz07Z8A";
        assert!(refusal(vec![hash(other)]).contains("argon2id"));
        assert!(
            refusal(vec![hash(&other.replace("2i$", "2id$").replace("19456", "99999999"))])
                .contains("memory")
        );
    }

    #[test]
    fn each_key_finds_its_owner_and_no_other_does() {
        let (a, b) = ("a".repeat(64), "b".repeat(64));
        let principals = Principals::new(vec![spec("anna", &a), spec("ben", &b)]).unwrap();
        let name = |key| principals.by_api_key(&key).map(|principal| principal.name.to_string());
        assert_eq!(name([0xaa; 32]).as_deref(), Some("anna"));
        assert_eq!(name([0xbb; 32]).as_deref(), Some("ben"));
        assert_eq!(name([0xab; 32]), None);
    }
}

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::MS_MAX;
use super::reader::Reader;

/// Where the buckets of policies are kept.
#[derive(Debug, Clone)]
pub enum BucketsSettings {
    Memory,
    Redis(RedisSettings),
}

#[derive(Clone)]
pub struct RedisSettings {
    /// May hold a password. The Redis client checks it.
    pub url: String,
    /// The file of certificates that the server's is checked against; the system's when there is none.
    pub tls_roots: Option<PathBuf>,
    pub prefix: String,
    pub connect_timeout: Duration,
    pub call_timeout: Duration,
    pub calls_max: usize,
}

/// Keys whose values are nobody's business, not even `check-config`'s.
pub const SECRET_KEYS: [&str; 1] = ["redis.url"];

const PREFIX_BYTES_MAX: usize = 64;

#[derive(Clone, Copy)]
enum Store {
    Memory,
    Redis,
}

impl BucketsSettings {
    pub(super) fn read(reader: &mut Reader<'_>, redis: RedisSettings) -> Option<Self> {
        let store = reader.one_of("limits.store", &[("memory", Store::Memory), ("redis", Store::Redis)]);
        Some(match store? {
            Store::Memory => Self::Memory,
            Store::Redis => Self::Redis(redis),
        })
    }
}

impl RedisSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let url = reader.text("redis.url");
        let roots = reader.text("redis.tls_roots");
        if !roots.is_empty() && !url.starts_with("rediss://") {
            let fix = "write rediss:// in redis.url, or leave this empty";
            reader.problem_with_fix("redis.tls_roots", "is for a redis.url over TLS", fix);
        }
        let prefix = reader.text("redis.prefix");
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !(1..=PREFIX_BYTES_MAX).contains(&prefix.len()) || !prefix.bytes().all(fits) {
            let what = format!("{prefix:?} must be 1 to {PREFIX_BYTES_MAX} letters, digits, '.', '_' or '-'");
            reader.problem_with_fix("redis.prefix", what, "such as \"tidegate\"");
        }
        Self {
            url: url.to_owned(),
            tls_roots: (!roots.is_empty()).then(|| PathBuf::from(roots)),
            prefix: prefix.to_owned(),
            connect_timeout: reader.millis("redis.connect_timeout_ms", 1..=MS_MAX),
            call_timeout: reader.millis("redis.call_timeout_ms", 1..=10_000),
            calls_max: reader.size("redis.calls_max", 1..=1_000_000),
        }
    }
}

impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSettings").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::load;

    #[test]
    fn redis_is_chosen_with_all_of_its_settings_and_its_url_stays_hidden() {
        let text = "[limits]\nstore = \"redis\"\n[redis]\nurl = \"redis://:open-sesame@db:6379/1\"\ncall_timeout_ms = 20\n";
        let loaded = load(text).unwrap();
        let BucketsSettings::Redis(redis) = &loaded.settings.buckets else { panic!("{loaded:?}") };
        assert_eq!(
            (redis.url.as_str(), redis.prefix.as_str()),
            ("redis://:open-sesame@db:6379/1", "tidegate")
        );
        assert_eq!(redis.call_timeout, Duration::from_millis(20));
        assert!(!format!("{loaded:?}").contains("sesame"), "{loaded:?}");
        assert!(matches!(load("").unwrap().settings.buckets, BucketsSettings::Memory));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_url() {
        let text = "[limits]\nstore = \"reddis\"\n[redis]\nurl = \"http://:open-sesame@db\"\nprefix = \"a{b}\"\ntls_roots = \"ca.pem\"\n";
        let problems = load(text).unwrap_err();
        for part in [
            "tidegate.toml:2: limits.store: \"reddis\" is not known; choose \"memory\" or \"redis\"",
            "tidegate.toml:5: redis.prefix: \"a{b}\" must be",
            "tidegate.toml:6: redis.tls_roots: is for a redis.url over TLS; write rediss://",
        ] {
            assert!(problems.contains(part), "{part}\nnot in {problems}");
        }
        assert!(!problems.contains("sesame"), "{problems}");
    }
}

use super::reader::Reader;
use super::redis::RedisSettings;
use super::{LedgerSettings, YEAR_MS};

/// How far ahead of now a message may be deferred, and the Redis of the quota accelerator, if there is one.
pub fn read(
    reader: &mut Reader<'_>,
    ledger: Option<&LedgerSettings>,
    redis: &RedisSettings,
) -> (u64, Option<RedisSettings>) {
    let defer_horizon_ms = reader.number("quotas.defer_horizon_ms", 0..=YEAR_MS);
    let accelerated = reader.one_of("quotas.accelerator", &[("off", false), ("redis", true)]);
    if let (Some(true), Some(LedgerSettings::Embedded(_))) = (accelerated, ledger) {
        let what = "is for ledger.kind = \"postgres\"; the embedded ledger decides in memory anyway";
        reader.problem_with_fix("quotas.accelerator", what, "choose \"off\", or the other ledger");
    }
    (defer_horizon_ms, accelerated.unwrap_or(false).then(|| redis.clone()))
}

#[cfg(test)]
mod tests {
    use crate::config::tests::load;

    const POSTGRES: &str = "[ledger]\nkind = \"postgres\"\n[quotas]\naccelerator = \"redis\"\n";

    #[test]
    fn the_accelerator_is_chosen_with_the_settings_of_redis() {
        let loaded = load(&format!("{POSTGRES}[redis]\nurl = \"redis://:open-sesame@db/1\"\n")).unwrap();
        let redis = loaded.settings.accelerator.as_ref().unwrap();
        assert_eq!(redis.url, "redis://:open-sesame@db/1");
        assert!(!format!("{loaded:?}").contains("sesame"), "{loaded:?}");
        assert!(load("").unwrap().settings.accelerator.is_none());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let problems = load("[quotas]\naccelerator = \"redis\"\n").unwrap_err();
        assert!(
            problems.contains("tidegate.toml:2: quotas.accelerator: is for ledger.kind = \"postgres\""),
            "{problems}"
        );
        let problems = load("[quotas]\naccelerator = \"reddis\"\n").unwrap_err();
        let part = "quotas.accelerator: \"reddis\" is not known; choose \"off\" or \"redis\"";
        assert!(problems.contains(part), "{problems}");
    }
}

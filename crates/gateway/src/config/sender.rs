use std::fmt;
use std::time::Duration;

use tidegate_domain::{BreakerRule, RetryPolicy};

use super::reader::Reader;
use super::{MS_MAX, YEAR_MS};

#[derive(Debug, Clone)]
pub struct SenderSettings {
    /// Attempts under way at the same time, per channel.
    pub concurrency: usize,
    pub batch: usize,
    pub lease_ms: u64,
    pub attempt_timeout: Duration,
    pub retry: RetryPolicy,
    pub retry_jitter_percent: u64,
    pub breaker: BreakerRule,
}

/// What is told about throughput, and when.
#[derive(Debug, Clone)]
pub struct StatsSettings {
    pub log_period: Option<Duration>,
    /// 0: never.
    pub depth_warning: u64,
    pub warning_webhook: Option<WarningUrl>,
}

/// A URL that may be a secret.
#[derive(Clone)]
pub struct WarningUrl(pub String);

impl fmt::Debug for WarningUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WarningUrl")
    }
}

impl SenderSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let small = |number: u64| u32::try_from(number).unwrap_or(1);
        let settings = Self {
            concurrency: reader.size("sender.concurrency", 1..=100_000),
            batch: reader.size("sender.batch", 1..=65_536),
            lease_ms: reader.number("sender.lease_ms", 1_000..=MS_MAX),
            attempt_timeout: reader.millis("sender.attempt_timeout_ms", 1..=MS_MAX),
            retry: RetryPolicy {
                attempts_max: small(reader.number("sender.attempts_max", 1..=1_000)),
                base_ms: reader.number("sender.retry_base_ms", 1..=YEAR_MS),
                max_ms: reader.number("sender.retry_max_ms", 1..=YEAR_MS),
                ack_within_ms: reader.number("sender.ack_within_ms", 1..=YEAR_MS),
            },
            retry_jitter_percent: reader.number("sender.retry_jitter_percent", 0..=100),
            breaker: BreakerRule {
                window: small(reader.number("breaker.window", 1..=128)),
                failure_percent: small(reader.number("breaker.failure_percent", 0..=100)),
                open_ms: reader.number("breaker.open_ms", 1..=MS_MAX),
                probes: small(reader.number("breaker.probes", 1..=1_000)),
            },
        };
        if reader.are_sound(["sender.lease_ms", "sender.attempt_timeout_ms"])
            && let Some(what) = settings.too_short(settings.lease_ms)
        {
            let fix = "raise the lease, or lower the timeout";
            reader.problem_with_fix("sender.lease_ms", what, fix);
        }
        if settings.retry.max_ms < settings.retry.base_ms
            && reader.are_sound(["sender.retry_max_ms", "sender.retry_base_ms"])
        {
            let what = format!("{} is below sender.retry_base_ms", settings.retry.max_ms);
            reader.problem_with_fix("sender.retry_max_ms", what, "raise this, or lower the base");
        }
        settings
    }
}

/// Between a claim and the beginning of its attempt: for the ledger's answer to arrive, and for room to become free.
const BEGINNING: Duration = Duration::from_millis(500);

impl SenderSettings {
    /// What is wrong with a lease that leaves no time for an attempt: it would never begin, or end after its lease.
    pub(super) fn too_short(&self, lease_ms: u64) -> Option<String> {
        let needed = self.attempt_timeout + BEGINNING;
        (Duration::from_millis(lease_ms) < needed).then(|| {
            let timeout = self.attempt_timeout.as_millis();
            let more = BEGINNING.as_millis();
            format!("{lease_ms} does not outlast sender.attempt_timeout_ms ({timeout}) by {more} ms")
        })
    }
}

impl StatsSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let period = reader.millis("stats.log_period_ms", 0..=MS_MAX * 24);
        Self {
            log_period: (!period.is_zero()).then_some(period),
            depth_warning: reader.number("stats.depth_warning", 0..=1_000_000_000),
            warning_webhook: Some(reader.text("stats.warning_webhook"))
                .filter(|url| !url.is_empty())
                .map(|url| WarningUrl(url.to_owned())),
        }
    }
}

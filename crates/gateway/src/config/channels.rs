use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_edge::Cidr;

use super::limits::networks;
use super::queues::{ChannelKind, QueuesSettings};
use super::reader::Reader;
use super::{MS_MAX, Origin, SenderSettings};

/// How channels reach their providers. Whoever builds a channel checks what only it understands.
#[derive(Debug, Clone)]
pub struct ChannelsSettings {
    pub webhook: WebhookSettings,
    pub inbox: InboxSettings,
}

#[derive(Clone)]
pub struct WebhookSettings {
    pub url: String,
    pub secrets: Vec<String>,
    /// With every message, by name.
    pub headers: Vec<(String, String)>,
    pub allow: Vec<Cidr>,
    /// Empty: any.
    pub ports: Vec<u16>,
    /// Not longer than an attempt.
    pub connect_timeout: Duration,
    pub idle_connections_max: usize,
    /// As many as attempts at the same time, unless there are too few files for them.
    pub connections_max: usize,
    pub permanent_statuses: Vec<u16>,
    pub ca_file: Option<PathBuf>,
}

#[derive(Clone)]
pub struct InboxSettings {
    pub secrets: Vec<String>,
}

/// Keys whose values are nobody's business, not even `check-config`'s.
pub const SECRET_KEYS: [&str; 5] =
    ["webhook.url", "webhook.secrets", "webhook.headers", "inbox.secrets", "stats.warning_webhook"];

impl ChannelsSettings {
    pub(super) fn read(reader: &mut Reader<'_>, queues: &QueuesSettings, sender: &SenderSettings) -> Self {
        let has = |kind| queues.pushed().any(|(_, channel, _)| channel == kind);
        let webhook = WebhookSettings {
            url: reader.text("webhook.url").to_owned(),
            secrets: owned(reader.texts("webhook.secrets")),
            headers: headers(reader),
            allow: networks(reader, "webhook.allow"),
            ports: numbers(reader, "webhook.ports", "a port", 1..=65_535),
            connect_timeout: connect_timeout(reader, sender),
            idle_connections_max: match reader.size("webhook.idle_connections_max", 0..=100_000) {
                0 => sender.concurrency,
                number => number,
            },
            connections_max: sender.concurrency,
            permanent_statuses: numbers(
                reader,
                "webhook.permanent_statuses",
                "the status of a failure",
                300..=599,
            ),
            ca_file: Some(PathBuf::from(reader.text("webhook.ca_file")))
                .filter(|path| !path.as_os_str().is_empty()),
        };
        if webhook.url.is_empty() && has(ChannelKind::Webhook) {
            let fix = "such as url = \"https://example.com/hook\"";
            reader.problem_with_fix("webhook.url", "is empty, and a queue has the channel \"webhook\"", fix);
        }
        let inbox = InboxSettings { secrets: owned(reader.texts("inbox.secrets")) };
        if inbox.secrets.is_empty() && has(ChannelKind::Inbox) {
            let fix = "add a secret of at least 16 bytes, such as the output of `openssl rand -base64 32`";
            reader.problem_with_fix("inbox.secrets", "is empty, and a queue has the channel \"inbox\"", fix);
        }
        Self { webhook, inbox }
    }
}

/// Written as in HTTP: "Name: value". Whoever builds the channel checks the names.
fn headers(reader: &mut Reader<'_>) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    for text in reader.texts("webhook.headers") {
        match text.split_once(':') {
            Some((name, value)) => headers.push((name.trim().to_owned(), value.trim().to_owned())),
            // Not repeated: it may be a secret that lost its name.
            None => reader.problem_with_fix(
                "webhook.headers",
                "an entry has no colon",
                "write each as \"Name: value\", such as \"Authorization: Bearer ...\"",
            ),
        }
    }
    headers
}

/// A dial that may take longer than its whole attempt would never be told from a slow provider. The default gives way
/// to a short attempt by itself.
fn connect_timeout(reader: &mut Reader<'_>, sender: &SenderSettings) -> Duration {
    const KEY: &str = "webhook.connect_timeout_ms";
    let (timeout, attempt) = (reader.millis(KEY, 1..=MS_MAX), sender.attempt_timeout);
    let told = reader.origin(KEY) != Origin::Default && reader.are_sound([KEY, "sender.attempt_timeout_ms"]);
    if timeout > attempt && told {
        let (ms, attempt_ms) = (timeout.as_millis(), attempt.as_millis());
        let what = format!("{ms} does not fit into sender.attempt_timeout_ms ({attempt_ms})");
        let fix =
            "an attempt includes its dialling: lower this, or raise the attempt's time (and sender.lease_ms)";
        reader.problem_with_fix(KEY, what, fix);
    }
    timeout.min(attempt)
}

fn numbers(reader: &mut Reader<'_>, key: &str, what: &str, range: RangeInclusive<u16>) -> Vec<u16> {
    let mut numbers = Vec::new();
    for text in reader.texts(key) {
        match text.parse().ok().filter(|number| range.contains(number)) {
            Some(number) => numbers.push(number),
            None => {
                let fix = format!("choose from {} to {}", range.start(), range.end());
                reader.problem_with_fix(key, format!("{text:?} is not {what}"), fix);
            }
        }
    }
    numbers
}

fn owned(texts: Vec<&str>) -> Vec<String> {
    texts.into_iter().map(str::to_owned).collect()
}

/// The URL of a webhook may be a secret too.
impl fmt::Debug for WebhookSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookSettings").field("allow", &self.allow).finish_non_exhaustive()
    }
}

impl fmt::Debug for InboxSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxSettings").finish_non_exhaustive()
    }
}

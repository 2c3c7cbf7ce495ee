use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::MS_MAX;
use super::queues::{ChannelKind, QueuesSettings};
use super::reader::Reader;

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
    pub allow: Vec<String>,
    pub connect_timeout: Duration,
    pub permanent_statuses: Vec<u16>,
    pub ca_file: Option<PathBuf>,
}

#[derive(Clone)]
pub struct InboxSettings {
    pub secrets: Vec<String>,
}

/// Keys whose values are nobody's business, not even `check-config`'s.
pub const SECRET_KEYS: [&str; 3] = ["webhook.url", "webhook.secrets", "inbox.secrets"];

impl ChannelsSettings {
    pub(super) fn read(reader: &mut Reader<'_>, queues: Option<&QueuesSettings>) -> Self {
        let has = |kind| queues.is_some_and(|queues| queues.pushed().any(|(_, channel, _)| channel == kind));
        let webhook = WebhookSettings {
            url: reader.text("webhook.url").to_owned(),
            secrets: owned(reader.texts("webhook.secrets")),
            allow: owned(reader.texts("webhook.allow")),
            connect_timeout: reader.millis("webhook.connect_timeout_ms", 1..=MS_MAX),
            permanent_statuses: statuses(reader),
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

fn statuses(reader: &mut Reader<'_>) -> Vec<u16> {
    let mut statuses = Vec::new();
    for text in reader.texts("webhook.permanent_statuses") {
        match text.parse().ok().filter(|status| (300..600).contains(status)) {
            Some(status) => statuses.push(status),
            None => {
                let what = format!("{text:?} is not the status of a failure");
                reader.problem_with_fix("webhook.permanent_statuses", what, "choose from 300 to 599");
            }
        }
    }
    statuses
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

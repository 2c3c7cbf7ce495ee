//! How channels are built from their settings.

use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tidegate_adapters::channels::inbox::{Inbox, InboxOptions};
use tidegate_adapters::channels::log::LogChannel;
use tidegate_adapters::channels::webhook::{WebhookChannel, WebhookOptions};
use tidegate_domain::{Channel, Clock};

use crate::config::{ChannelKind, Settings, WarningUrl, WebhookSettings};
use crate::server::Channels;
use crate::stats::Alarm;

/// The channels that this process pushes queues out by. Connects nowhere.
pub fn channels(settings: &Settings, clock: &Arc<dyn Clock>) -> anyhow::Result<Channels> {
    let mut channels = Channels::new();
    for (_, kind, _) in settings.pushed() {
        if channels.contains(kind) || kind == ChannelKind::Inbox && channels.devices.is_some() {
            continue;
        }
        let channel: Arc<dyn Channel> = match kind {
            ChannelKind::Log => Arc::new(LogChannel::stdout().context("cannot start the log channel")?),
            ChannelKind::Webhook => {
                let options = webhook(&settings.channels.webhook, settings)?;
                Arc::new(WebhookChannel::new(options, clock.clone()).context("the settings of [webhook]")?)
            }
            ChannelKind::Inbox => {
                let mut options = InboxOptions::new(settings.channels.inbox.secrets.clone());
                options.kept_ms = settings.sender.retry.ack_within_ms;
                let inbox = Inbox::new(options, clock.clone()).context("the settings of [inbox]")?;
                channels.devices = Some(Arc::new(inbox));
                continue;
            }
        };
        channels.insert(kind, channel);
    }
    channels.alarm = alarm(settings, clock)?;
    Ok(channels)
}

/// Who is told when a queue gets too deep, if anybody is. What the provider's webhook sends along is not for them.
fn alarm(settings: &Settings, clock: &Arc<dyn Clock>) -> anyhow::Result<Option<Arc<dyn Alarm>>> {
    let Some(WarningUrl(url)) = settings.stats.warning_webhook.clone() else { return Ok(None) };
    let mut options = webhook(&settings.channels.webhook, settings)?;
    (options.url, options.headers, options.idle_connections_max) = (url, Vec::new(), 1);
    let hook = WebhookChannel::new(options, clock.clone()).context("stats.warning_webhook")?;
    Ok(Some(Arc::new(WebhookAlarm(hook))))
}

#[derive(Debug)]
struct WebhookAlarm(WebhookChannel);

impl Alarm for WebhookAlarm {
    fn raise<'a>(&'a self, id: &'a str, json: &'a Bytes) -> BoxFuture<'a, Result<(), String>> {
        self.0.notify(id, json).boxed()
    }
}

fn webhook(webhook: &WebhookSettings, settings: &Settings) -> anyhow::Result<WebhookOptions> {
    let mut options = webhook_options(webhook);
    options.total_timeout = settings.sender.attempt_timeout;
    if let Some(path) = &webhook.ca_file {
        let pem = std::fs::read(path).with_context(|| format!("webhook.ca_file: {}", path.display()))?;
        options.ca_pem = Some(pem);
    }
    Ok(options)
}

/// Without what has to be read from a file.
pub fn webhook_options(webhook: &WebhookSettings) -> WebhookOptions {
    let mut options = WebhookOptions::new(webhook.url.clone());
    options.secrets = webhook.secrets.clone();
    // Both write a network in the same way.
    options.allow = webhook.allow.iter().filter_map(|network| network.to_string().parse().ok()).collect();
    options.connect_timeout = webhook.connect_timeout;
    options.permanent_statuses = webhook.permanent_statuses.clone();
    options.idle_connections_max = webhook.idle_connections_max;
    options.connections_max = webhook.connections_max;
    options.headers = webhook.headers.clone();
    options.ports = webhook.ports.clone();
    options
}

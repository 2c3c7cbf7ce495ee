use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_adapters::SystemClock;
use tidegate_adapters::channels::webhook::{WebhookChannel, WebhookOptions};
use tidegate_domain::{Channel, Claim, Delivery, Headers, Lane, MessageId, QueueName, Recipient, Timestamp};
use tidegate_testkit::load;

use super::cycle::body;
use super::server::Server;
use super::{Scale, median};
use crate::figure::Figure;

const RECIPIENTS: usize = 10_000;
const CONCURRENCY: usize = 64;
const BATCH: usize = 1_000;
const ROUNDS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(120);

/// Delivery to a loopback sink, in strict order per recipient, against the same client that does nothing but POST.
pub fn webhook(dir: &Path, scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let sink = Server::sink()?;
    let config = dir.join("webhook.toml");
    std::fs::write(
        &config,
        format!(
            "[webhook]\nurl = \"http://{}/hook\"\nallow = [\"127.0.0.0/8\"]\n\
             [sender]\nconcurrency = {CONCURRENCY}\n[[queues]]\nname = \"hooks\"\nchannel = \"webhook\"\n",
            sink.address
        ),
    )?;
    let gateway = Server::durable_with(&dir.join("webhook"), &config)?;
    runtime.block_on(async {
        gateway.ready().await?;
        let (mut delivered, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            bare.push(post_only(sink.address, scale.webhook_messages).await?);
            delivered.push(deliver(&gateway, sink.address, scale.webhook_messages).await?);
        }
        let (delivered, bare) = (median(delivered), median(bare));
        println!(
            "webhooks to {RECIPIENTS} recipients, {CONCURRENCY} at a time: delivered {delivered:.0}/s, the client alone {bare:.0}/s"
        );
        Ok(vec![Figure::ratio("webhook_delivery_vs_client", delivered / bare, 0.4)])
    })
}

/// Admits while the queue is paused, then lets it go and waits until the sink has everything.
async fn deliver(gateway: &Server, sink: SocketAddr, messages: usize) -> anyhow::Result<f64> {
    let group = [("consumerGroup", "hooks")];
    let text = String::from_utf8(body().to_vec())?;
    let mut first = true;
    let before = taken(sink).await?;
    for batch in 0..messages.div_ceil(BATCH) {
        let message = |n: usize| {
            let recipient = (batch * BATCH + n) % RECIPIENTS;
            format!("{{\"queue\":\"hooks\",\"recipient\":\"r{recipient}\",\"body\":\"{text}\"}}")
        };
        let count = BATCH.min(messages - batch * BATCH);
        let list: Vec<_> = (0..count).map(message).collect();
        if first {
            // A queue can be paused once it is there.
            gateway.post_with("/api/v1/messages", &[], &message(0)).await?;
            gateway.post_with("/queue/pause", &group, "").await?;
            first = false;
        }
        gateway
            .post_with("/api/v1/messages/batch", &[], &format!("{{\"messages\":[{}]}}", list.join(",")))
            .await?;
    }
    let waiting = before + u64::try_from(messages)? + 1;
    let early = taken(sink).await?;
    let started = Instant::now();
    gateway.post_with("/queue/resume", &group, "").await?;
    loop {
        let now = taken(sink).await?;
        if now >= waiting {
            break;
        }
        anyhow::ensure!(started.elapsed() < PATIENCE, "{} of {messages} arrived", now - before);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    #[expect(clippy::cast_precision_loss, reason = "a count for people")]
    let delivered = (waiting - early) as f64;
    Ok(delivered / started.elapsed().as_secs_f64())
}

/// The channel in a loop, without a ledger or a sender.
async fn post_only(sink: SocketAddr, messages: usize) -> anyhow::Result<f64> {
    let mut options = WebhookOptions::new(format!("http://{sink}/hook"));
    options.allow = vec!["127.0.0.0/8".parse()?];
    options.idle_connections_max = CONCURRENCY;
    let channel = Arc::new(WebhookChannel::new(options, Arc::new(SystemClock::new()))?);
    let left = Arc::new(AtomicUsize::new(messages));
    let started = Instant::now();
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..CONCURRENCY {
        let (channel, left) = (channel.clone(), left.clone());
        workers.spawn(async move {
            let (claim, body) = (claim()?, body());
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
            {
                let delivery = channel.deliver(&claim, &body).await;
                anyhow::ensure!(delivery == Delivery::Delivered, "{delivery:?}");
            }
            Ok(())
        });
    }
    while let Some(done) = workers.join_next().await {
        done??;
    }
    #[expect(clippy::cast_precision_loss, reason = "a count for people")]
    Ok(messages as f64 / started.elapsed().as_secs_f64())
}

fn claim() -> anyhow::Result<Claim> {
    let at = Timestamp::from_millis(1_763_244_000_000);
    Ok(Claim {
        id: MessageId::new(at, 1, 1),
        queue: QueueName::new("hooks")?,
        recipient: Some(Recipient::new("r1")?),
        lane: Lane::Normal,
        user: None,
        admitted_at: at,
        attempt: 1,
        failures: 0,
        ack_attempts: 0,
        ack_required: false,
        headers: Headers::default(),
        token: 1,
        lease_until: Timestamp::MAX,
        body: Some(Bytes::new()),
    })
}

async fn taken(sink: SocketAddr) -> anyhow::Result<u64> {
    let (_, count) = load::get(sink, "/count").await?;
    Ok(String::from_utf8(count)?.parse()?)
}

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde_json::json;
use tidegate_domain::{Clock, QueueName};
use tokio::sync::mpsc;

use crate::http::iso;

/// Notices that wait for a receiver that is slow. Beyond, they are dropped: the log has them all.
const WAITING_MAX: usize = 64;
const ATTEMPTS: [Duration; 3] = [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(5)];

/// Somebody outside who is told what is worth a warning. Answers within a deadline of its own.
pub trait Alarm: Debug + Send + Sync + 'static {
    /// The id is the same for every attempt at the same notice.
    fn raise<'a>(&'a self, id: &'a str, json: &'a Bytes) -> BoxFuture<'a, Result<(), String>>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    TooDeep,
    WellAgain,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub event: Event,
    pub queue: QueueName,
    pub depth: u64,
    pub threshold: u64,
}

/// Where notices are left; somebody else sees to it that they get out.
#[derive(Debug)]
pub struct Bell {
    line: mpsc::Sender<(String, Bytes)>,
    clock: Arc<dyn Clock>,
}

/// Starts a task that posts notices one after the other, until the bell is dropped.
pub fn ring(alarm: Arc<dyn Alarm>, clock: &Arc<dyn Clock>) -> Bell {
    let (line, mut notices) = mpsc::channel::<(String, Bytes)>(WAITING_MAX);
    tokio::spawn(async move {
        while let Some((id, json)) = notices.recv().await {
            raise(&*alarm, &id, &json).await;
        }
    });
    Bell { line, clock: clock.clone() }
}

async fn raise(alarm: &dyn Alarm, id: &str, json: &Bytes) {
    let mut reason = String::new();
    for wait in ATTEMPTS {
        tokio::time::sleep(wait).await;
        match alarm.raise(id, json).await {
            Ok(()) => return count("delivered"),
            Err(why) => reason = why,
        }
    }
    count("failed");
    tracing::warn!(reason, "the warning's webhook could not be told");
}

impl Bell {
    pub fn ring(&self, notice: Notice) {
        let Notice { event, queue, depth, threshold } = notice;
        let event = match event {
            Event::TooDeep => "queue.depth_warning",
            Event::WellAgain => "queue.depth_recovered",
        };
        let now = self.clock.now();
        let id = format!("{event}-{queue}-{}", now.millis());
        let body = json!({"type": event, "timestamp": iso(now), "data": {
            "queue": queue.as_str(), "depth": depth, "threshold": threshold,
        }});
        if self.line.try_send((id, Bytes::from(body.to_string()))).is_err() {
            count("dropped");
            tracing::warn!(%queue, "too many warnings wait for their webhook; this one is dropped");
        }
    }
}

fn count(result: &'static str) {
    metrics::counter!("tidegate_warning_webhooks_total", "result" => result).increment(1);
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tidegate_testkit::TestClock;

    use super::*;

    #[derive(Debug)]
    struct Deaf;

    impl Alarm for Deaf {
        fn raise<'a>(&'a self, _: &'a str, _: &'a Bytes) -> BoxFuture<'a, Result<(), String>> {
            std::future::pending().boxed()
        }
    }

    #[tokio::test]
    async fn a_receiver_that_never_answers_holds_nobody_up() {
        let clock: Arc<dyn Clock> = Arc::new(TestClock::default());
        let bell = ring(Arc::new(Deaf), &clock);
        let queue = QueueName::new("jobs").unwrap();
        for depth in 0..10 * WAITING_MAX as u64 {
            bell.ring(Notice { event: Event::TooDeep, queue: queue.clone(), depth, threshold: 1 });
            tokio::task::yield_now().await;
        }
        assert_eq!(bell.line.capacity(), 0, "bounded");
    }
}

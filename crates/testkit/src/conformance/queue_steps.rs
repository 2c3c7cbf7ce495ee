use tidegate_domain::{
    Acked, Body, Cancelled, Claim, ClaimRequest, Extension, Filter, MessageId, MessageRecord, Outcome, Page,
    QueueCounts, Requeue, Requeued, Settled, Status,
};
use tokio::task::JoinHandle;

use super::steps::{LEASE_MS, QUEUE, dead, queue, texts};
use super::{Draft, sms};
use crate::Harness;

pub const ACK_MS: u64 = 300_000;
/// More pages than any case fills: a list that goes on for longer goes round in circles.
const PAGES_MAX: usize = 1_000;

pub fn accepted() -> Outcome {
    Outcome::Accepted { ack_within_ms: ACK_MS }
}

pub fn requeue_of(id: MessageId) -> Requeue {
    Requeue { id, body: None, delay_ms: 0 }
}

/// One step each, with the books checked after it.
impl Harness {
    pub async fn pop_from(&self, name: &str, max: usize) -> Vec<Claim> {
        let popped = self.queues().pop(queue(name), max, 0).await.expect("pop");
        self.counts().await;
        popped
    }

    pub async fn pop(&self, max: usize) -> Vec<String> {
        texts(&self.pop_from(QUEUE, max).await)
    }

    /// Starts a pop that waits. Whether it already sleeps when the caller goes on is left to chance.
    pub async fn pop_waiting(&self, max: usize, wait_ms: u64) -> JoinHandle<Vec<Claim>> {
        let queues = self.queues();
        let task = tokio::spawn(async move { queues.pop(queue(QUEUE), max, wait_ms).await.expect("pop") });
        for _ in 0..10 {
            self.counts().await;
            tokio::task::yield_now().await;
        }
        task
    }

    pub async fn claim_for(&self, lease_ms: u64) -> Claim {
        let request = ClaimRequest { queue: queue(QUEUE), max: 1, lease_ms, wait_ms: 0 };
        self.ledger().claim(request).await.expect("claim").pop().expect("a claimable message")
    }

    pub async fn extend(&self, claim: &Claim, lease_ms: u64) -> Settled {
        let extension = Extension { id: claim.id, token: claim.token, lease_ms };
        self.queues().extend(vec![extension]).await.expect("extend").remove(0)
    }

    pub async fn ack(&self, id: MessageId) -> Acked {
        let acked = self.queues().ack(vec![id]).await.expect("ack").remove(0);
        self.counts().await;
        acked
    }

    pub async fn cancel(&self, id: MessageId) -> Cancelled {
        let cancelled = self.queues().cancel(vec![id]).await.expect("cancel").remove(0);
        self.counts().await;
        cancelled
    }

    pub async fn requeue(&self, requeue: Requeue) -> Requeued {
        let requeued = self.queues().requeue(vec![requeue]).await.expect("requeue").remove(0);
        self.counts().await;
        requeued
    }

    pub async fn delete_dead(&self, id: MessageId) -> bool {
        let deleted = self.queues().delete_dead(vec![id]).await.expect("delete_dead").remove(0);
        self.counts().await;
        deleted
    }

    pub async fn purge(&self, name: &str) -> u64 {
        let purged = self.queues().purge(queue(name)).await.expect("purge");
        self.counts().await;
        purged
    }

    pub async fn pause(&self, name: &str, paused: bool) -> bool {
        self.queues().pause(queue(name), paused).await.expect("pause")
    }

    pub async fn queue_counts(&self) -> Vec<QueueCounts> {
        self.queues().queue_counts().await.expect("queue_counts")
    }

    /// Every page of a list, put together.
    pub async fn list(&self, filter: Filter, max: usize) -> Vec<MessageRecord> {
        let (mut all, mut after) = (Vec::new(), None);
        for _ in 0..PAGES_MAX {
            let page = Page { max, body_bytes_max: Some(usize::MAX), after };
            let listing = self.queues().list(filter.clone(), page).await.expect("list");
            assert!(listing.messages.len() <= max, "{} instead of {max}", listing.messages.len());
            all.extend(listing.messages);
            after = listing.next;
            if after.is_none() {
                return all;
            }
        }
        panic!("the list does not end");
    }

    /// Admits a message, and has it refused for good.
    pub async fn put_dead(&self, draft: Draft) -> MessageId {
        let from = draft.0.queue.as_str().to_owned();
        let id = self.put(draft).await;
        let claim = self.claim_from(&from, 1).await.pop().expect("a claimable message");
        assert_eq!((claim.id, self.settle(&claim, dead()).await), (id, Settled::Done));
        id
    }

    /// Admits a message that its channel accepts.
    pub async fn put_accepted(&self, draft: Draft) -> MessageId {
        let id = self.put(draft.needs_ack()).await;
        let claim = self.claim_one().await;
        assert_eq!((claim.id, self.settle(&claim, accepted()).await), (id, Settled::Done));
        id
    }

    pub async fn status(&self, id: MessageId) -> Status {
        self.record(id).await.status
    }

    /// Ids that were never given out: of a later message, of another ledger, and with the time of another message.
    pub async fn unknown_ids(&self) -> [MessageId; 3] {
        let id = self.put(sms("known").on("elsewhere")).await;
        let record = self.record(id).await;
        [
            MessageId::new(record.admitted_at, id.seq() + 9, id.salt()),
            MessageId::new(record.admitted_at, id.seq(), !id.salt()),
            MessageId::new(record.admitted_at.plus_ms(1), id.seq(), id.salt()),
        ]
    }

    /// Lets a lease of the usual length end.
    pub fn let_lease_end(&self) {
        self.clock.advance_ms(LEASE_MS);
    }
}

fn text_of(body: &Body) -> String {
    match body {
        Body::Whole(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{other:?}"),
    }
}

pub fn bodies(records: &[MessageRecord]) -> Vec<String> {
    records.iter().map(|record| text_of(&record.body)).collect()
}

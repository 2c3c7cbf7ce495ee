//! What is deleted takes its text along.

use tidegate_domain::{Body, Cancelled, Filter, Headers, MessageId, MessageRecord, Page, Status};

use super::steps::{Draft, QUEUE, sms};
use crate::Harness;

pub async fn a_cancelled_message_has_no_text_any_more(h: &Harness) {
    let ids = h.put_all([secret("a"), secret("b")]).await;
    assert_eq!(h.cancel(ids[0]).await, Cancelled::Cancelled);
    let kept = secret("b").0;
    for _ in 0..2 {
        assert_erased(h, &ids[..1]).await;
        let other = h.record(ids[1]).await;
        assert_eq!((other.body, other.headers), (Body::Whole(kept.body.clone()), kept.headers.clone()));
        h.reopen().await.expect("reopen");
    }
    assert_eq!(h.deliver_all().await, ["b"]);
}

pub async fn purged_messages_have_no_text_any_more(h: &Harness) {
    let large = (0..3).map(|_| secret(&"long ".repeat(20_000)));
    let ids = h.put_all(["a", "", "c"].map(secret).into_iter().chain(large)).await;
    assert_eq!(h.purge(QUEUE).await, 6);
    for _ in 0..2 {
        assert_erased(h, &ids).await;
        h.reopen().await.expect("reopen");
    }
}

pub async fn a_key_is_kept_unless_it_tells_of_the_text(h: &Harness) {
    for (key, left) in [("mine", Some("mine")), ("content-00ff", None)] {
        let mut draft = secret("a");
        draft.0.headers.set_key(key.to_owned());
        let id = h.put(draft).await;
        assert_eq!(h.cancel(id).await, Cancelled::Cancelled);
        assert_eq!(h.record(id).await.headers.key(), left);
        assert_eq!(h.record(id).await.headers.given(), Headers::default());
    }
}

pub(super) async fn assert_erased(h: &Harness, ids: &[MessageId]) {
    let deleted = Filter { status: Some(Status::Deleted), ..Filter::default() };
    let of_queue = Filter { queue: Some(secret("").0.queue), ..deleted.clone() };
    for filter in [deleted.clone(), of_queue] {
        let listed = h.list(filter, 100).await;
        assert_eq!(listed.iter().map(|record| record.id).collect::<Vec<_>>(), ids);
        listed.iter().for_each(assert_empty);
    }
    for id in ids {
        let record = h.record(*id).await;
        assert_eq!(record.status, Status::Deleted);
        assert_empty(&record);
    }
    let unread = Page { max: 100, body_bytes_max: None, after: None };
    for record in h.queues().list(deleted, unread).await.expect("list").messages {
        assert_eq!((record.body, record.headers), (Body::Unread, Headers::default()));
    }
}

fn assert_empty(record: &MessageRecord) {
    assert_eq!((&record.body, &record.headers), (&Body::Erased, &Headers::default()));
}

pub(super) fn secret(body: &str) -> Draft {
    sms(body).header("subject", "a private subject")
}

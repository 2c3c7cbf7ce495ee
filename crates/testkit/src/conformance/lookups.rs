//! Look-ups by recipient and by user: the messages of one among those of all others.

use tidegate_domain::{Filter, Listing, MessageId, MessageRecord, Page, Recipient, Requeued, Status};

use super::queue_steps::{bodies, requeue_of};
use super::steps::{queue, sms, user};
use crate::{Harness, Setup};

/// More messages than any ledger looks at for one page, by batches.
const OTHERS: usize = 21_000;
const BATCH: usize = 7_000;

fn to(name: &str) -> Filter {
    Filter { recipient: Some(Recipient::new(name).expect("a valid recipient")), ..Filter::default() }
}

fn of(name: &str) -> Filter {
    Filter { user: Some(user(name)), ..Filter::default() }
}

fn page(max: usize, after: Option<MessageId>) -> Page {
    Page { max, body_bytes_max: Some(usize::MAX), after }
}

async fn with_quotas(h: &Harness, users: &[&str]) {
    for name in users {
        h.ledger().put_quota(user(name), 1_000, 60_000).await.expect("put_quota");
    }
}

pub async fn a_recipient_and_a_user_of_one_name_are_told_apart(h: &Harness) {
    with_quotas(h, &["ann", "bob"]).await;
    h.put_all([
        sms("bob to ann").to("ann").charged_to("bob"),
        sms("ann to bob").to("bob").charged_to("ann"),
        sms("ann to ann").to("ann").charged_to("ann"),
        sms("ann to none").charged_to("ann"),
        sms("to ann").to("ann"),
        sms("to none"),
    ])
    .await;
    let expected: [(Filter, &[&str]); 6] = [
        (to("ann"), &["bob to ann", "ann to ann", "to ann"]),
        (of("ann"), &["ann to bob", "ann to ann", "ann to none"]),
        (Filter { user: Some(user("ann")), ..to("ann") }, &["ann to ann"]),
        (Filter { user: Some(user("bob")), ..to("ann") }, &["bob to ann"]),
        (to("cyd"), &[]),
        (of("cyd"), &[]),
    ];
    for (filter, found) in expected {
        for max in [1, 2, 9] {
            assert_eq!(bodies(&h.list(filter.clone(), max).await), found, "{filter:?} by pages of {max}");
        }
    }
}

pub async fn every_page_but_the_last_is_full(h: &Harness) {
    h.put_all((0..40).map(|n| sms(&n.to_string()).to(if n % 4 == 1 { "ann" } else { "bob" }))).await;
    let filter = to("ann");
    for max in [1, 3, 9, 10, 11] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let Listing { messages, next, .. } =
                h.queues().list(filter.clone(), page(max, after)).await.expect("list");
            assert!(
                messages.len() == max || next.is_none(),
                "{} of {max}, yet there are more",
                messages.len()
            );
            found.extend(messages.into_iter().map(|record: MessageRecord| record.id.seq()));
            after = next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found.len(), 10, "pages of {max}");
        assert!(found.is_sorted(), "oldest first: {found:?}");
    }
}

pub async fn others_between_take_no_page(h: &Harness) {
    let room = OTHERS + h.setup().pending_max;
    h.reopen_with(&Setup { pending_max: room, pending_hard_max: room, ..h.setup().clone() })
        .await
        .expect("reopen");
    with_quotas(h, &["payer"]).await;
    h.put(sms("first").to("ann").charged_to("payer").on("kept")).await;
    for first in (0..OTHERS).step_by(BATCH) {
        h.put_all((first..first + BATCH).map(|n| sms("x").to(&format!("other{n}")).on("others"))).await;
    }
    h.put(sms("last").to("ann").charged_to("payer").on("kept")).await;
    let dead = h.put_dead(sms("dead").to("ann").charged_to("payer")).await;
    let status = |status| Filter { status: Some(status), ..to("ann") };
    let expected: [(Filter, &[&str]); 7] = [
        (to("ann"), &["first", "last", "dead"]),
        (of("payer"), &["first", "last", "dead"]),
        (status(Status::Pending), &["first", "last"]),
        (status(Status::Dead), &["dead"]),
        (status(Status::Delivered), &[]),
        (Filter { queue: Some(queue("kept")), ..of("payer") }, &["first", "last"]),
        (to("nowhere"), &[]),
    ];
    for (filter, found) in expected {
        let Listing { messages, next, .. } =
            h.queues().list(filter.clone(), page(9, None)).await.expect("list");
        assert_eq!(
            (bodies(&messages), next),
            (found.iter().map(ToString::to_string).collect(), None),
            "{filter:?}"
        );
    }
    // A page that ends with the first one goes on behind all others.
    let first = h.queues().list(to("ann"), page(1, None)).await.expect("list");
    let rest = h.queues().list(to("ann"), page(2, first.next)).await.expect("list");
    assert_eq!(
        (bodies(&first.messages), bodies(&rest.messages)),
        (vec!["first".into()], vec!["last".into(), "dead".into()])
    );
    assert_eq!(h.requeue(requeue_of(dead)).await, Requeued::Requeued);
    let pending = h.queues().list(status(Status::Pending), page(9, None)).await.expect("list");
    assert_eq!(bodies(&pending.messages), ["first", "last", "dead"]);
}

pub async fn a_look_up_follows_what_becomes_of_its_messages(h: &Harness) {
    let dead = h.put_dead(sms("dead").to("ann")).await;
    let gone = h.put_dead(sms("gone").to("ann")).await;
    h.put(sms("delivered").to("ann")).await;
    h.deliver_all().await;
    let status = |status| Filter { status: Some(status), ..to("ann") };
    assert_eq!(bodies(&h.list(status(Status::Dead), 9).await), ["dead", "gone"]);
    assert!(h.delete_dead(gone).await);
    assert_eq!(h.requeue(requeue_of(dead)).await, Requeued::Requeued);
    assert_eq!(bodies(&h.list(to("ann"), 9).await), ["dead", "delivered"]);
    assert_eq!(bodies(&h.list(status(Status::Pending), 9).await), ["dead"]);
    assert_eq!(bodies(&h.list(Filter { ended: true, ..to("ann") }, 9).await), ["delivered"]);
}

pub async fn a_look_up_finds_the_same_after_a_reopen(h: &Harness) {
    with_quotas(h, &["payer"]).await;
    h.put(sms("before").to("ann").charged_to("payer")).await;
    h.reopen().await.expect("reopen");
    assert_eq!(bodies(&h.list(to("ann"), 9).await), ["before"]);
    h.put(sms("after").to("ann").charged_to("payer")).await;
    h.reopen().await.expect("reopen");
    for filter in [to("ann"), of("payer")] {
        assert_eq!(bodies(&h.list(filter, 9).await), ["before", "after"]);
    }
}

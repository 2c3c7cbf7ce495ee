//! Lists: what matches, oldest first, page by page.

use tidegate_domain::{Clock, Filter, Lane, MessageId, Page, Recipient, Settled, Status};

use super::queue_steps::{bodies, requeue_of};
use super::steps::{QUEUE, queue, retry, sms, user};
use crate::Harness;

pub async fn a_list_tells_everything_oldest_first(h: &Harness) {
    let ids = a_few_of_everything(h).await;
    let listed = h.list(Filter::default(), 100).await;
    assert_eq!(bodies(&listed), ["delivered", "dead", "expired", "Erased", "waiting", "leased", "mail"]);
    for (record, id) in listed.iter().zip(ids) {
        assert_eq!(*record, h.record(id).await);
    }
}

pub async fn every_filter_counts(h: &Harness) {
    a_few_of_everything(h).await;
    let status = |status| Filter { status: Some(status), ..Filter::default() };
    let ann = Recipient::new("ann").expect("a valid recipient");
    let start = crate::TestClock::START;
    let expected: [(Filter, &[&str]); 15] = [
        (status(Status::Pending), &["waiting", "leased", "mail"]),
        (status(Status::Delivered), &["delivered"]),
        (status(Status::Dead), &["dead"]),
        (status(Status::Expired), &["expired"]),
        (status(Status::Deleted), &["Erased"]),
        (Filter { ended: true, ..Filter::default() }, &["delivered", "dead", "expired", "Erased"]),
        (Filter { queue: Some(queue("mail")), ..Filter::default() }, &["mail"]),
        (Filter { queue: Some(queue("never-seen")), ..Filter::default() }, &[]),
        (Filter { recipient: Some(ann), ..Filter::default() }, &["delivered", "dead"]),
        (Filter { user: Some(user("payer")), ..Filter::default() }, &["delivered", "waiting"]),
        (Filter { user: Some(user("ann")), ..Filter::default() }, &[]),
        (Filter { lane: Some(Lane::High), ..Filter::default() }, &["dead", "mail"]),
        (Filter { from: Some(start.plus_ms(30)), ..Filter::default() }, &["waiting", "leased", "mail"]),
        (Filter { to: Some(start.plus_ms(10)), ..Filter::default() }, &["delivered"]),
        (Filter { ended: true, ..status(Status::Pending) }, &[]),
    ];
    for (filter, bodies_expected) in expected {
        assert_eq!(bodies(&h.list(filter.clone(), 2).await), bodies_expected, "{filter:?}");
    }
}

pub async fn filters_combine(h: &Harness) {
    a_few_of_everything(h).await;
    let start = crate::TestClock::START;
    let dead_of_ann = Filter {
        queue: Some(queue(QUEUE)),
        status: Some(Status::Dead),
        ended: true,
        recipient: Some(Recipient::new("ann").expect("a valid recipient")),
        user: None,
        lane: Some(Lane::High),
        from: Some(start.plus_ms(10)),
        to: Some(start.plus_ms(11)),
    };
    assert_eq!(bodies(&h.list(dead_of_ann.clone(), 9).await), ["dead"]);
    let others = [
        Filter { queue: Some(queue("mail")), ..dead_of_ann.clone() },
        Filter { status: Some(Status::Delivered), ..dead_of_ann.clone() },
        Filter { recipient: Some(Recipient::new("bob").expect("valid")), ..dead_of_ann.clone() },
        Filter { user: Some(user("payer")), ..dead_of_ann.clone() },
        Filter { lane: Some(Lane::Low), ..dead_of_ann.clone() },
        Filter { from: Some(start.plus_ms(11)), ..dead_of_ann.clone() },
        Filter { to: Some(start.plus_ms(10)), ..dead_of_ann },
    ];
    for filter in others {
        assert_eq!(h.list(filter.clone(), 9).await, [], "{filter:?}");
    }
}

pub async fn pages_hold_everything_once(h: &Harness) {
    h.put_all((0..23).map(|n| sms(&n.to_string()).on(if n % 3 == 0 { "mail" } else { QUEUE }))).await;
    let all: Vec<String> = (0..23).map(|n| n.to_string()).collect();
    let mail: Vec<String> = (0..23).step_by(3).map(|n| n.to_string()).collect();
    for max in [1, 2, 7, 22, 23, 24] {
        assert_eq!(bodies(&h.list(Filter::default(), max).await), all, "pages of {max}");
        let filter = Filter { queue: Some(queue("mail")), ..Filter::default() };
        assert_eq!(bodies(&h.list(filter, max).await), mail, "pages of {max}");
    }
}

pub async fn a_page_of_none_holds_none(h: &Harness) {
    h.put_all(["a", "b"].map(sms)).await;
    let page = Page { max: 0, body_bytes_max: Some(usize::MAX), after: None };
    assert_eq!(h.queues().list(Filter::default(), page).await.expect("list").messages, []);
}

pub async fn what_comes_while_paging_comes_last(h: &Harness) {
    h.put_all(["a", "b", "c"].map(sms)).await;
    let first = h
        .queues()
        .list(Filter::default(), Page { max: 2, body_bytes_max: Some(usize::MAX), after: None })
        .await
        .expect("list");
    h.put(sms("d")).await;
    let rest = h
        .queues()
        .list(Filter::default(), Page { max: 9, body_bytes_max: Some(usize::MAX), after: first.next })
        .await
        .expect("list");
    assert_eq!(bodies(&first.messages), ["a", "b"]);
    assert_eq!((bodies(&rest.messages), rest.next), (vec!["c".to_owned(), "d".to_owned()], None));
}

pub async fn pages_of_dead_letters_hold_each_once(h: &Harness) {
    for n in 0..7 {
        h.put_dead(sms(&n.to_string()).on(if n % 2 == 0 { "mail" } else { QUEUE })).await;
        h.put(sms("alive").on("elsewhere")).await;
    }
    let dead = Filter { status: Some(Status::Dead), ..Filter::default() };
    let of_mail = Filter { queue: Some(queue("mail")), ..dead.clone() };
    for max in [1, 3, 7] {
        assert_eq!(bodies(&h.list(dead.clone(), max).await), ["0", "1", "2", "3", "4", "5", "6"]);
        assert_eq!(bodies(&h.list(of_mail.clone(), max).await), ["0", "2", "4", "6"]);
    }
}

/// However old it is: the list of what is pending must not begin after it.
pub async fn a_requeued_message_is_listed_as_pending(h: &Harness) {
    let old = h.put_dead(sms("old")).await;
    h.put(sms("young")).await;
    h.deliver_all().await;
    h.reopen().await.expect("reopen");
    h.clock.advance_ms(60_000);
    h.ledger().sweep().await.expect("sweep");
    assert_eq!(h.requeue(requeue_of(old)).await, tidegate_domain::Requeued::Requeued);
    let pending = Filter { status: Some(Status::Pending), ..Filter::default() };
    assert_eq!(bodies(&h.list(pending.clone(), 9).await), ["old"]);
    h.reopen().await.expect("reopen");
    assert_eq!(bodies(&h.list(pending, 9).await), ["old"]);
}

/// One message of each kind, ten milliseconds apart; those that are pending come in the last one.
async fn a_few_of_everything(h: &Harness) -> Vec<MessageId> {
    h.ledger().put_quota(user("payer"), 9, 60_000).await.expect("put_quota");
    let mut ids = vec![h.put(sms("delivered").to("ann").charged_to("payer")).await];
    h.deliver_all().await;
    h.clock.advance_ms(10);
    ids.push(h.put_dead(sms("dead").to("ann").lane(Lane::High)).await);
    h.clock.advance_ms(10);
    ids.push(h.put(sms("expired").expires(h.clock.now().plus_ms(1))).await);
    ids.push(h.put(sms("deleted").lane(Lane::Low)).await);
    h.cancel(ids[3]).await;
    h.clock.advance_ms(10);
    h.ledger().sweep().await.expect("sweep");
    ids.push(h.put(sms("waiting").to("bob").charged_to("payer").lane(Lane::Low)).await);
    let waiting = h.claim_one().await;
    assert_eq!(h.settle(&waiting, retry(60_000)).await, Settled::Done);
    ids.push(h.put(sms("leased").to("cyd")).await);
    h.claim_one().await;
    ids.push(h.put(sms("mail").on("mail").lane(Lane::High)).await);
    ids
}

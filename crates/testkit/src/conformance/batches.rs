//! Answers are bounded in bytes, so that memory does not follow from how many messages were asked for.

use bytes::Bytes;
use tidegate_domain::{BATCH_BYTES_MAX, Body, Filter, Lane, MessageId, MessageRecord, Outcome, Page};

use super::steps::{Draft, QUEUE, sms};
use super::transit_steps::dispatch_of;
use crate::{FAIR, Harness};

/// Two of them fit into an answer.
const LARGE_BYTES: usize = 3 * BATCH_BYTES_MAX / 8;

pub async fn a_claim_leases_no_more_than_fits_into_its_answer(h: &Harness) {
    let ids = h.put_all((0..5).map(|_| large(LARGE_BYTES))).await;
    for part in [&ids[..2], &ids[2..4], &ids[4..]] {
        assert_eq!(claimed(h.claim(9).await), part);
    }
    assert_eq!(h.claim(9).await, []);
}

pub async fn a_dispatch_leases_no_more_than_fits_into_its_answer(h: &Harness) {
    let ids = h.put_all((0..3).map(|_| large(LARGE_BYTES))).await;
    for part in [&ids[..2], &ids[2..]] {
        let sent = h.transit().dispatch(dispatch_of(QUEUE, 9, 0), 9).await.expect("dispatch");
        assert_eq!(claimed(sent), part);
    }
}

/// What a pop takes it answers.
pub async fn a_pop_takes_no_more_than_fits_into_its_answer(h: &Harness) {
    let mut ids = h.put_all((0..3).map(|_| large(LARGE_BYTES).to("ann"))).await;
    ids.extend(h.put_all((0..2).map(|_| large(LARGE_BYTES))).await);
    for part in [&ids[..2], &ids[2..4], &ids[4..]] {
        assert_eq!(claimed(h.pop_from(QUEUE, 9).await), part);
    }
    assert_eq!(h.pop_from(QUEUE, 9).await, []);
}

pub async fn one_message_fits_into_every_answer(h: &Harness) {
    let drafts = || [large(BATCH_BYTES_MAX + 1), sms("small")];
    for id in h.put_all(drafts()).await {
        assert_eq!(claimed(h.claim(9).await), [id]);
    }
    for id in h.put_all(drafts()).await {
        assert_eq!(claimed(h.pop_from(QUEUE, 9).await), [id]);
    }
}

/// The message that did not fit is the next.
pub async fn what_does_not_fit_keeps_its_turn(h: &Harness) {
    let of = |lane, count| (0..count).map(move |_| large(LARGE_BYTES).lane(lane).on(FAIR));
    for popped in [false, true] {
        let high = h.put_all(of(Lane::High, 4)).await;
        let low = h.put_all(of(Lane::Low, 1)).await;
        // After two of the high lane it is the turn of the low one.
        for part in [vec![high[0], high[1]], vec![low[0], high[2]], vec![high[3]]] {
            let taken = if popped { h.pop_from(FAIR, 9).await } else { h.claim_from(FAIR, 9).await };
            assert_eq!(claimed(taken), part, "popped: {popped}");
        }
    }
}

pub async fn pages_end_by_their_bytes(h: &Harness) {
    let sizes = [10, 20, 100, 5, 5, 5, 50];
    let ids = h.put_all(sizes.map(large)).await;
    for (bytes_max, lengths) in [(30, vec![2, 1, 3, 1]), (1, vec![1; 7]), (1_000, vec![7])] {
        let (mut listed, mut found) = (Vec::new(), Vec::new());
        for page in pages(h, 9, Some(bytes_max)).await {
            found.push(page.len());
            listed.extend(page);
        }
        assert_eq!(found, lengths, "pages of {bytes_max} bytes");
        assert_eq!(listed.iter().map(|record| record.id).collect::<Vec<_>>(), ids);
        assert!(listed.iter().zip(sizes).all(|(record, bytes)| record.body.len() == bytes));
    }
}

/// Headers and the reasons of attempts come with a page as bodies do.
pub async fn pages_count_headers_and_reasons(h: &Harness) {
    let mut ids = h.put_all((0..3).map(|_| sms("x").header("note", &"y".repeat(500)))).await;
    ids.extend(h.put_all((0..3).map(|_| sms("x"))).await);
    for claim in h.claim(9).await {
        if ids[3..].contains(&claim.id) {
            h.settle(&claim, Outcome::Retry { delay_ms: 0, reason: "z".repeat(500) }).await;
        }
    }
    let bytes = h.record(ids[0]).await.text_bytes();
    assert!(bytes > 500, "{bytes}");
    let listed = pages(h, 9, Some(bytes + 100)).await;
    assert_eq!(listed.iter().map(Vec::len).collect::<Vec<_>>(), [1; 6]);
    let listed: Vec<_> = listed.into_iter().flatten().map(|record| record.id).collect();
    assert_eq!(listed, ids);
}

pub async fn a_page_without_bodies_reads_none(h: &Harness) {
    let ids = h.put_all((0..5).map(|n| sms(&n.to_string()))).await;
    let pages = pages(h, 3, None).await;
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [3, 2]);
    let listed: Vec<_> = pages.into_iter().flatten().collect();
    assert_eq!(listed.iter().map(|record| record.id).collect::<Vec<_>>(), ids);
    for (listed, id) in listed.into_iter().zip(ids) {
        let whole = h.record(id).await;
        assert_eq!(listed, MessageRecord { body: Body::Unread, ..whole });
    }
}

async fn pages(h: &Harness, max: usize, body_bytes_max: Option<usize>) -> Vec<Vec<MessageRecord>> {
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let page = Page { max, body_bytes_max, after };
        let listing = h.queues().list(Filter::default(), page).await.expect("list");
        pages.push(listing.messages);
        after = listing.next;
        if after.is_none() {
            return pages;
        }
        assert!(pages.len() < 100, "the list does not end");
    }
}

fn large(bytes: usize) -> Draft {
    let mut draft = sms("");
    draft.0.body = Bytes::from("x".repeat(bytes));
    draft
}

fn claimed(claims: Vec<tidegate_domain::Claim>) -> Vec<MessageId> {
    claims.into_iter().map(|claim| claim.id).collect()
}

//! What every bus does.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use tidegate_domain::{BusHealth, Claim, Headers, Lane, MessageId, UserId};

use super::BusHarness;
use super::harness::{claim, queue, receive, receive_some};

const WAIT_MS: u64 = 500;

fn by_id(claims: &[Claim]) -> BTreeMap<MessageId, Claim> {
    claims.iter().map(|claim| (claim.id, claim.clone())).collect()
}

pub async fn what_is_published_is_received_as_it_was(h: &BusHarness) {
    let mut claims = vec![claim(1, "a"), claim(2, "b"), claim(3, "häß lich\u{1F600}"), claim(4, "d")];
    (claims[0].lane, claims[1].lane) = (Lane::High, Lane::Low);
    claims[1].body = Some(Bytes::from_static(&[0, 159, 146, 150, 255]));
    claims[2].user = Some(UserId::new("1001").expect("a user"));
    claims[2].headers = Headers(vec![("X-One".into(), "1".into()), ("X-Two".into(), "\"2\"".into())]);
    (claims[3].recipient, claims[3].ack_required, claims[3].body) = (None, true, Some(Bytes::new()));
    (claims[3].attempt, claims[3].failures, claims[3].ack_attempts, claims[3].token) = (9, 4, 2, u64::MAX);
    h.publish(&claims).await;
    let mut consumer = h.consumer().await;
    let received = receive(&mut *consumer, claims.len()).await;
    assert_eq!(by_id(&received), by_id(&claims));
}

pub async fn records_of_a_recipient_keep_their_order(h: &BusHarness) {
    let mut consumer = h.consumer().await;
    let claims: Vec<_> = (0..300).map(|n| claim(n, &format!("recipient-{}", n % 7))).collect();
    for batch in claims.chunks(50) {
        h.publish(batch).await;
    }
    let received = receive(&mut *consumer, claims.len()).await;
    let mut last: HashMap<_, MessageId> = HashMap::new();
    for claim in received {
        let before = last.insert(claim.recipient.clone(), claim.id);
        assert!(before.is_none_or(|before| before < claim.id), "{claim:?} came after {before:?}");
    }
}

pub async fn queues_do_not_mix(h: &BusHarness) {
    let mut job = claim(1, "a");
    job.queue = queue("jobs");
    h.publish(&[job.clone(), claim(2, "a")]).await;
    let mut jobs = h.bus.consumer(queue("jobs")).await.expect("a consumer");
    assert_eq!(receive(&mut *jobs, 1).await, [job]);
    assert_eq!(receive_some(&mut *jobs, 9, WAIT_MS).await, []);
    let mut sms = h.consumer().await;
    assert_eq!(receive(&mut *sms, 1).await, [claim(2, "a")]);
}

/// The lanes together are shared: how many of one lane's partitions a consumer has is left to the bus, and may be none.
pub async fn consumers_share_what_there_is(h: &BusHarness) {
    let of_any_lane = |n: u64| Claim {
        lane: Lane::ALL[usize::try_from(n % 3).unwrap_or(0)],
        ..claim(n, &format!("r-{n}"))
    };
    let other = h.another().await;
    let (mut one, mut two) = (h.consumer().await, other.consumer(queue("sms")).await.expect("a consumer"));
    // Both have a share when both have received something; until then they may still be making out which.
    let (mut sent, mut served) = (0, [false, false]);
    while served != [true, true] {
        h.publish(&(sent..sent + 40).map(of_any_lane).collect::<Vec<_>>()).await;
        sent += 40;
        for (served, consumer) in served.iter_mut().zip([&mut one, &mut two]) {
            *served |= !receive_some(&mut **consumer, 20, 50).await.is_empty();
            consumer.done().await.expect("a bus that is there");
        }
    }
    let second: Vec<_> = (10_000..10_200).map(of_any_lane).collect();
    h.publish(&second).await;
    let wanted: HashSet<_> = second.iter().map(|claim| claim.id).collect();
    let mut received = Vec::new();
    while received.len() < second.len() {
        for consumer in [&mut one, &mut two] {
            let claims = receive_some(&mut **consumer, 100, 50).await;
            received.extend(claims.into_iter().map(|claim| claim.id).filter(|id| wanted.contains(id)));
            consumer.done().await.expect("a bus that is there");
        }
    }
    assert_eq!(received.len(), second.len(), "nobody received what another one had");
    assert_eq!(received.into_iter().collect::<HashSet<_>>(), wanted);
}

pub async fn what_was_not_done_goes_to_another(h: &BusHarness) {
    let claims: Vec<_> = (0..20).map(|n| claim(n, &format!("r-{n}"))).collect();
    h.publish(&claims).await;
    let mut first = h.consumer().await;
    assert_eq!(receive(&mut *first, 20).await.len(), 20);
    drop(first);
    let other = h.another().await;
    let mut second = other.consumer(queue("sms")).await.expect("a consumer");
    assert_eq!(by_id(&receive(&mut *second, 20).await), by_id(&claims));
}

pub async fn what_was_done_does_not_come_again(h: &BusHarness) {
    h.publish(&(0..20).map(|n| claim(n, &format!("r-{n}"))).collect::<Vec<_>>()).await;
    let mut first = h.consumer().await;
    receive(&mut *first, 20).await;
    first.done().await.expect("a bus that is there");
    drop(first);
    h.publish(&[claim(100, "r-1")]).await;
    let mut second = h.consumer().await;
    assert_eq!(receive(&mut *second, 1).await, [claim(100, "r-1")]);
    assert_eq!(receive_some(&mut *second, 9, WAIT_MS).await, []);
}

pub async fn a_record_that_nobody_was_there_for_waits(h: &BusHarness) {
    h.publish(&[claim(1, "a")]).await;
    let other = h.another().await;
    let mut consumer = other.consumer(queue("sms")).await.expect("a consumer");
    assert_eq!(receive(&mut *consumer, 1).await, [claim(1, "a")]);
}

pub async fn the_high_lane_comes_first_and_the_low_one_is_not_forgotten(h: &BusHarness) {
    const EACH: u64 = 200;
    const ROUNDS: u64 = 20;
    let in_lane = |n, lane| Claim { lane, ..claim(n, &format!("r-{n}")) };
    let mut consumer = h.consumer().await;
    let mut last = (0, 0);
    for round in 0..ROUNDS {
        let first = round * 2 * EACH;
        h.publish(&(first..first + EACH).map(|n| in_lane(n, Lane::Low)).collect::<Vec<_>>()).await;
        h.publish(&(first + EACH..first + 2 * EACH).map(|n| in_lane(n, Lane::High)).collect::<Vec<_>>())
            .await;
        let mut lanes = Vec::new();
        while lanes.len() < usize::try_from(2 * EACH).expect("a count") {
            let claims = receive_some(&mut *consumer, 10, WAIT_MS).await;
            lanes.extend(claims.iter().map(|claim| claim.lane));
            consumer.done().await.expect("a bus that is there");
        }
        // While both lanes had something: nobody knows when the first records of a lane arrive.
        let of =
            |lane| lanes.iter().position(|one| *one == lane).zip(lanes.iter().rposition(|one| *one == lane));
        let (Some((high, last_high)), Some((low, _))) = (of(Lane::High), of(Lane::Low)) else { continue };
        let both = &lanes[high.max(low)..=last_high.max(high.max(low))];
        let highs = both.iter().filter(|lane| **lane == Lane::High).count();
        let lows = both.len() - highs;
        // Where the last of the high lane arrive when those before have been received, the low one is served alone
        // meanwhile: that round tells nothing.
        if highs >= 60 && (highs / 20..=highs / 2).contains(&lows) {
            return;
        }
        last = (lows, highs);
    }
    let (lows, highs) = last;
    panic!(
        "in {ROUNDS} rounds never both in proportion; at last {lows} of the low lane beside {highs} of the high"
    );
}

pub async fn nothing_to_receive_is_no_error(h: &BusHarness) {
    let mut consumer = h.consumer().await;
    assert_eq!(consumer.receive(10, 20).await, Ok(vec![]));
    assert_eq!(consumer.done().await, Ok(()));
    assert_eq!(h.bus.publish(vec![]).await, vec![]);
    h.publish(&[claim(1, "a")]).await;
    assert_eq!(receive(&mut *consumer, 1).await.len(), 1);
}

pub async fn a_stranger_s_record_is_skipped_and_done_with(h: &BusHarness) {
    for bytes in [&b"SMS SENT"[..], b"{\"id\":\"x\"}", b"", b"\xff\xfe"] {
        h.put(bytes).await;
    }
    let mut first = h.consumer().await;
    h.publish(&[claim(1, "a")]).await;
    assert_eq!(receive(&mut *first, 1).await, [claim(1, "a")]);
    first.done().await.expect("a bus that is there");
    drop(first);
    h.publish(&[claim(2, "a")]).await;
    let mut second = h.consumer().await;
    assert_eq!(receive(&mut *second, 1).await, [claim(2, "a")]);
}

pub async fn a_queue_that_does_not_travel_is_refused(h: &BusHarness) {
    let stray = Claim { queue: queue("elsewhere"), ..claim(1, "a") };
    let results = h.bus.publish(vec![stray, claim(2, "a")]).await;
    assert!(matches!(results[..], [Err(_), Ok(())]), "{results:?}");
    assert!(h.bus.consumer(queue("elsewhere")).await.is_err());
}

pub async fn a_bus_that_is_there_says_so(h: &BusHarness) {
    h.until_ready().await;
    h.publish(&[claim(1, "a")]).await;
    assert_eq!(h.bus.health(), BusHealth::Ready);
}

//! Lanes rank recipients; a lower one waits, but not for ever.

use tidegate_domain::{Clock, Due, Lane, Outcome, Settled};

use super::steps::{Draft, sms, texts};
use crate::{FAIR, Harness};

pub async fn higher_lanes_go_first(h: &Harness) {
    let past = Due::At(h.clock.now().minus_ms(1_000));
    h.put_all([sms("low").lane(Lane::Low).due(past), sms("normal"), sms("high").lane(Lane::High)]).await;
    assert_eq!(texts(&h.claim(9).await), ["high", "normal", "low"]);
}

pub async fn a_lower_lane_has_its_turn_after_ten_higher(h: &Harness) {
    h.put_all(many(Lane::Low, "low", 3)).await;
    h.put_all(many(Lane::High, "high", 25)).await;
    // One claim or many: the choice is made message by message.
    let mut order = texts(&h.claim(7).await);
    order.extend(h.deliver_all().await);
    let lows: Vec<_> = places(&order, "low");
    assert_eq!(lows, [10, 21, 27]);
    assert_eq!(order[10], "low0");
}

pub async fn a_queues_rule_says_how_many_higher_go_before_a_lower(h: &Harness) {
    h.put_all(many(Lane::Low, "low", 3).map(|draft| draft.on(FAIR))).await;
    h.put_all(many(Lane::High, "high", 7).map(|draft| draft.on(FAIR))).await;
    let mut order = texts(&h.claim_from(FAIR, 4).await);
    order.extend(texts(&h.pop_from(FAIR, 9).await));
    assert_eq!(places(&order, "low"), [2, 5, 8]);
}

pub async fn two_lower_lanes_take_turns(h: &Harness) {
    h.put_all(many(Lane::Low, "low", 2)).await;
    h.put_all(many(Lane::Normal, "normal", 2)).await;
    h.put_all(many(Lane::High, "high", 44)).await;
    let order = texts(&h.claim(64).await);
    assert_eq!((places(&order, "normal"), places(&order, "low")), (vec![10, 32], vec![21, 43]));
}

pub async fn a_lane_without_competition_builds_no_streak(h: &Harness) {
    h.put_all(many(Lane::High, "high", 20)).await;
    assert_eq!(h.claim(15).await.len(), 15);
    h.put_all(many(Lane::Low, "low", 1)).await;
    assert_eq!(texts(&h.claim(2).await), ["high15", "high16"]);
}

pub async fn a_chain_counts_as_the_highest_lane_waiting_in_it(h: &Harness) {
    h.put_all([
        sms("normal"),
        sms("head").to("ann").lane(Lane::Low),
        sms("urgent").to("ann").lane(Lane::High),
    ])
    .await;
    assert_eq!(h.deliver_all().await, ["head", "urgent", "normal"]);
}

pub async fn a_message_not_yet_due_lends_its_lane_too(h: &Harness) {
    let later = Due::At(h.clock.now().plus_ms(1_000));
    h.put_all([
        sms("normal"),
        sms("head").to("ann").lane(Lane::Low),
        sms("urgent").to("ann").lane(Lane::High).due(later),
    ])
    .await;
    assert_eq!(h.deliver_all().await, ["head", "normal"]);
    h.clock.advance_ms(1_000);
    assert_eq!(h.deliver_all().await, ["urgent"]);
}

pub async fn a_lent_lane_ends_with_its_lender(h: &Harness) {
    h.put_all([sms("head").to("ann").lane(Lane::High), sms("tail").to("ann").lane(Lane::Low), sms("normal")])
        .await;
    let head = h.claim_one().await;
    assert_eq!(texts(std::slice::from_ref(&head)), ["head"]);
    // Handed back, the head is as urgent as before.
    assert_eq!(h.settle(&head, Outcome::Released).await, Settled::Done);
    assert_eq!(h.deliver_all().await, ["head", "normal", "tail"]);
}

fn many(lane: Lane, name: &str, count: usize) -> impl Iterator<Item = Draft> {
    (0..count).map(move |n| sms(&format!("{name}{n}")).lane(lane))
}

fn places(order: &[String], name: &str) -> Vec<usize> {
    order.iter().enumerate().filter(|(_, body)| body.starts_with(name)).map(|(place, _)| place).collect()
}

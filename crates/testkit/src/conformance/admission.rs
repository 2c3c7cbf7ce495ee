//! What gets in, and what is answered.

use tidegate_domain::{Admitted, Clock, Lane, Status};
use tokio::task::JoinSet;

use super::steps::sms;
use crate::Harness;

pub async fn an_admitted_message_is_pending(h: &Harness) {
    let answer = h.admit_one(sms("hello")).await;
    let Admitted::Admitted { id, at, quota: None } = answer else { panic!("{answer:?}") };
    assert_eq!(at, h.clock.now());
    assert_eq!(h.record(id).await.status, Status::Pending);
    let counts = h.counts().await;
    assert_eq!((counts.admitted, counts.pending, counts.leased), (1, 1, 0));
}

pub async fn a_batch_is_decided_item_by_item(h: &Harness) {
    let answers = h.admit([sms("a"), sms("b").charged_to("nobody"), sms("c")]).await;
    assert!(matches!(
        answers.as_slice(),
        [Admitted::Admitted { .. }, Admitted::UnknownUser, Admitted::Admitted { .. }]
    ));
    assert_eq!(h.deliver_all().await, ["a", "c"]);
}

pub async fn a_full_ledger_refuses_until_a_message_is_settled(h: &Harness) {
    let room = h.setup().pending_max;
    let answers = h.admit((0..room + 2).map(|n| sms(&n.to_string()))).await;
    assert!(answers[..room].iter().all(|answer| matches!(answer, Admitted::Admitted { .. })));
    assert_eq!(answers[room..], [Admitted::Full, Admitted::Full]);

    let claim = h.claim_one().await;
    assert_eq!(h.admit_one(sms("a lease makes no room")).await, Admitted::Full);
    h.deliver(&claim).await;
    h.put(sms("now there is room")).await;
    assert_eq!(h.admit_one(sms("and no more")).await, Admitted::Full);
}

pub async fn urgent_messages_pass_a_full_ledger_up_to_a_bound_of_their_own(h: &Harness) {
    let (max, hard_max) = (h.setup().pending_max, h.setup().pending_hard_max);
    h.put_all((0..max).map(|n| sms(&n.to_string()))).await;
    let answers = h.admit((max..hard_max + 1).map(|n| sms(&n.to_string()).lane(Lane::High))).await;
    let (last, passed) = answers.split_last().expect("some");
    assert!(passed.len() == 2 && passed.iter().all(|answer| matches!(answer, Admitted::Admitted { .. })));
    assert_eq!(*last, Admitted::Full);
    assert_eq!(h.admit_one(sms("not urgent").lane(Lane::Low)).await, Admitted::Full);
    let claim = h.claim_one().await;
    h.deliver(&claim).await;
    assert_eq!(h.admit_one(sms("still above the common limit")).await, Admitted::Full);
    h.put(sms("urgent").lane(Lane::High)).await;
}

pub async fn a_full_ledger_still_knows_its_duplicates(h: &Harness) {
    let first = h.put(sms("a").key("k")).await;
    h.put_all((1..h.setup().pending_max).map(|n| sms(&n.to_string()))).await;
    let at = h.clock.now();
    assert_eq!(h.admit_one(sms("a").key("k")).await, Admitted::Duplicate { id: first, at });
    assert_eq!(h.admit_one(sms("b").charged_to("nobody")).await, Admitted::Full);
}

pub async fn ids_are_distinct_and_sort_by_admission(h: &Harness) {
    let mut ids = h.put_all((0..10).map(|n| sms(&n.to_string()))).await;
    h.admit_one(sms("refused").charged_to("nobody")).await;
    h.clock.advance_ms(1);
    ids.push(h.put(sms("later")).await);
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1] && pair[0].seq() < pair[1].seq()), "{ids:?}");
}

pub async fn parallel_admissions_are_all_in_the_books(h: &Harness) {
    let mut tasks = JoinSet::new();
    for n in 0..32 {
        let ledger = h.ledger();
        tasks.spawn(async move { ledger.admit(vec![sms(&n.to_string()).0]).await });
    }
    let answers = tasks.join_all().await;
    assert!(answers.iter().all(|answer| matches!(answer.as_deref(), Ok([Admitted::Admitted { .. }]))));
    let mut bodies = h.deliver_all().await;
    bodies.sort_by_key(|body| body.parse::<u32>().expect("a number"));
    assert_eq!(bodies, (0..32).map(|n| n.to_string()).collect::<Vec<_>>());
}

//! Several gateways on one database keep what one keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_domain::limits::slot::{Calendar, Period, SlotRule};
use tidegate_domain::{
    Admitted, Claim, ClaimRequest, Ledger as _, MessageId, Outcome, Queues as _, Reserved, Settlement,
    Slots as _,
};
use tidegate_testkit::HANG;
use tidegate_testkit::conformance::{ask, per_window, queue, slot_config, sms, user};
use tidegate_testkit::{TestClock, services};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::backend::PostgresBackend;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_that_start_together_migrate_once() {
    let backend = PostgresBackend::empty();
    let gateways = backend.gateways(4, |_| ()).await;
    let sql = "SELECT count(*) FROM tidegate.migration WHERE version = 1";
    assert_eq!(services::Postgres::shared().sql(&backend.database, sql).unwrap(), "1\n");
    for gateway in gateways {
        assert_eq!(gateway.counts().await.unwrap().admitted, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_slots_of_a_quota_go_to_exactly_as_many_over_three_gateways() {
    let backend = PostgresBackend::empty();
    let gateways = backend.gateways(3, |options| options.batch_max = 3).await;
    gateways[0].put_quota(user("ann"), 50, 3_600_000).await.unwrap();
    gateways[0].put_quota(user("bob"), 7, 3_600_000).await.unwrap();
    let mut tasks = JoinSet::new();
    for n in 0..240 {
        let gateway = gateways[n % 3].clone();
        // Both orders, so that batches that lock as they come would stand in each other's way.
        let names = if n % 2 == 0 { ["ann", "bob"] } else { ["bob", "ann"] };
        tasks.spawn(async move {
            gateway.admit(names.map(|name| sms("x").charged_to(name).to(name).0).to_vec()).await.unwrap()
        });
    }
    let answers: Vec<Admitted> = tasks.join_all().await.into_iter().flatten().collect();
    let passed = answers.iter().filter(|answer| matches!(answer, Admitted::Admitted { .. })).count();
    let denied = answers.iter().filter(|answer| matches!(answer, Admitted::OverQuota { .. })).count();
    assert_eq!((passed, denied), (57, 480 - 57));
    for (name, count) in [("ann", 50), ("bob", 7)] {
        let quota = gateways[1].quota(user(name)).await.unwrap().unwrap();
        assert_eq!(quota.count, count);
    }
    assert_eq!(gateways[2].counts().await.unwrap().pending, 57);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_makes_one_message_over_three_gateways() {
    let backend = PostgresBackend::empty();
    let gateways = backend.gateways(3, |options| options.batch_max = 8).await;
    let mut tasks = JoinSet::new();
    for n in 0..180 {
        let gateway = gateways[n % 3].clone();
        let key = n / 3 % 20;
        tasks.spawn(async move {
            let draft = sms(&key.to_string()).key(&key.to_string());
            (key, gateway.admit(vec![draft.0]).await.unwrap().remove(0))
        });
    }
    let (mut admitted, mut ids): (usize, BTreeMap<usize, BTreeSet<MessageId>>) = Default::default();
    for (key, answer) in tasks.join_all().await {
        let id = match answer {
            Admitted::Admitted { id, .. } => {
                admitted += 1;
                id
            }
            Admitted::Duplicate { id, .. } => id,
            other => panic!("{other:?}"),
        };
        ids.entry(key).or_default().insert(id);
    }
    assert_eq!((admitted, ids.len()), (20, 20));
    assert!(ids.values().all(|ids| ids.len() == 1), "{ids:?}");
    assert_eq!(gateways[0].counts().await.unwrap().admitted, 20);
}

/// Polling is turned off: only a notification can do it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_wakes_when_a_message_comes_through_another_gateway() {
    let backend = PostgresBackend::empty();
    let gateways = backend.gateways(2, |options| options.poll = Duration::from_secs(600)).await;
    for round in 0..5 {
        let gateway = gateways[1].clone();
        let waiting = tokio::spawn(async move {
            let request = ClaimRequest { queue: queue("sms"), max: 1, lease_ms: 60_000, wait_ms: 50_000 };
            gateway.claim(request).await.unwrap()
        });
        if round % 2 == 0 {
            // Asleep by now, as a rule; whether it is must not matter.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        gateways[0].admit(vec![sms("a").0]).await.unwrap();
        let claims = timeout(HANG, waiting).await.expect("the claim wakes").unwrap();
        assert_eq!(claims.len(), 1, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_message_is_popped_twice_over_three_gateways() {
    let backend = PostgresBackend::empty();
    let gateways = backend.gateways(3, |_| ()).await;
    let drafts = (0..300).map(|n| {
        let draft = sms(&n.to_string());
        if n % 3 == 0 { draft.to(&format!("r{}", n % 7)).0 } else { draft.0 }
    });
    gateways[0].admit(drafts.collect()).await.unwrap();
    let mut tasks = JoinSet::new();
    for n in 0..12 {
        let gateway = gateways[n % 3].clone();
        tasks.spawn(async move {
            let mut mine = Vec::new();
            while gateway.counts().await.unwrap().pending > 0 {
                mine.extend(gateway.pop(queue("sms"), 1 + n % 5, 20).await.unwrap());
            }
            mine
        });
    }
    let popped: Vec<MessageId> = tasks.join_all().await.concat().into_iter().map(|claim| claim.id).collect();
    assert_eq!((popped.len(), popped.iter().collect::<BTreeSet<_>>().len()), (300, 300));
    assert_eq!(gateways[1].counts().await.unwrap().delivered, 300);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_earliest_windows_fill_exactly_over_three_gateways() {
    let backend = PostgresBackend::empty();
    let gateways = backend.gateways(3, |options| options.batch_max = 4).await;
    let mut held: BTreeMap<i64, usize> = BTreeMap::new();
    for (round, max_per_window) in [5, 8].into_iter().enumerate() {
        gateways[round].put_slot_config(slot_config("default"), per_window(max_per_window)).await.unwrap();
        let mut tasks = JoinSet::new();
        for n in 0..120 {
            let gateway = gateways[n % 3].clone();
            // Every event twice, through two gateways.
            let event = format!("{round}-{}", n / 2);
            let asked = ask(&event).with(sms(&event).to(&format!("r{}", n % 5))).0;
            tasks.spawn(async move { gateway.reserve(vec![asked]).await.unwrap().remove(0) });
        }
        for reserved in tasks.join_all().await {
            match reserved {
                Reserved::Assigned(slot) => *held.entry(slot.window_start.millis()).or_default() += 1,
                Reserved::Existing(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    // 60 in twelve windows of five; then 36 more into these, and 24 into three new ones.
    assert_eq!(held.values().copied().collect::<Vec<_>>(), [8; 15]);
    assert_eq!(gateways[2].counts().await.unwrap().pending, 120);
    let log = services::Postgres::shared().log().unwrap();
    assert!(!log.contains("deadlock detected"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_calendar_counts_at_once_on_every_gateway() {
    let backend = PostgresBackend::empty();
    let gateways = backend.gateways(2, |_| ()).await;
    let name = || slot_config("default");
    gateways[0].put_slot_config(name(), per_window(1)).await.unwrap();
    let reserve = async |event: &str| match gateways[1].reserve(vec![ask(event).0]).await.unwrap().remove(0) {
        Reserved::Assigned(slot) => slot.window_start.since_ms(TestClock::START) / 4_000,
        other => panic!("{other:?}"),
    };
    assert_eq!(reserve("remembers the rule").await, 0);
    let blackout = Period { from: TestClock::START.plus_ms(4_000), to: TestClock::START.plus_ms(16_000) };
    let calendar = Calendar { blackouts: vec![blackout], business_hours: None };
    gateways[0].put_slot_config(name(), SlotRule { calendar, ..per_window(1) }).await.unwrap();
    assert_eq!(reserve("must not").await, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_leased_for_somebody_who_has_gone_is_there_for_the_next() {
    let backend = PostgresBackend::empty();
    let ledger = backend.gateways(1, |_| ()).await.remove(0);
    let batch = (0..50).map(|n| sms("x").to(&n.to_string()).0).collect();
    ledger.admit(batch).await.unwrap();
    let request = ClaimRequest { queue: queue("sms"), max: 5, lease_ms: 3_600_000, wait_ms: 0 };
    for n in 0..60u64 {
        // Gone before, while or after the database is asked.
        let patience = Duration::from_micros(100 * n);
        let Ok(claims) = timeout(patience, ledger.claim(request.clone())).await else { continue };
        let released = claims.unwrap().into_iter().map(|Claim { id, token, .. }| {
            let outcome = Outcome::Released;
            Settlement { id, token, outcome, latency_ms: 0 }
        });
        ledger.settle(released.collect()).await.unwrap();
    }
    let none_leased = async {
        while ledger.counts().await.unwrap().leased > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(HANG, none_leased).await.expect("no lease is left without a holder");
}

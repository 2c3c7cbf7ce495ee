//! Queues that no configuration names come and go.

use tempfile::tempdir;

use crate::client::exchange;
use crate::gateway::{Gateway, WallClock, eventually, start};
use crate::ledger;
use crate::queue::{pop, push};

/// More than the embedded ledger has places for.
const NAMES: usize = 4_200;
const CALLERS: usize = 8;

/// Pushes to each of many new names and pops it. How many had a place?
fn use_names(gateway: &Gateway) -> usize {
    std::thread::scope(|scope| {
        let use_some = |caller: usize| {
            let names = (caller..NAMES).step_by(CALLERS).map(|n| format!("name{n}"));
            names
                .filter(|name| {
                    push(gateway, name, "a", &[]).status == 200 && pop(gateway, name, &[]).status == 200
                })
                .count()
        };
        let callers: Vec<_> = (0..CALLERS).map(|caller| scope.spawn(move || use_some(caller))).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).sum()
    })
}

fn queues(gateway: &Gateway) -> usize {
    gateway.get("/api/v1/stats").json()["queues"].as_array().unwrap().len()
}

fn balanced(gateway: &Gateway, delivered: usize) {
    let totals = gateway.get("/api/v1/stats").json()["totals"].clone();
    assert_eq!((&totals["delivered"], &totals["balanced"]), (&delivered.into(), &true.into()), "{totals}");
}

#[test]
fn names_that_are_not_used_any_more_give_their_places_back() {
    let dir = tempdir().unwrap();
    if !ledger::is_embedded() {
        // A database has a clock of its own, and no bound on names.
        let gateway = start(dir.path());
        assert_eq!(use_names(&gateway), NAMES);
        return balanced(&gateway, NAMES);
    }
    std::fs::write(dir.path().join("tidegate.toml"), "[queue]\nforget_after_minutes = 5\n").unwrap();
    let (gateway, clock) = WallClock::start(dir.path());
    let used = use_names(&gateway);
    assert!(used < NAMES, "the bound is met: {used}");
    assert_eq!(push(&gateway, "newcomer", "a", &[]).status, 429);
    assert_eq!(push(&gateway, "name0", "again", &[]).status, 200, "who has a place keeps it");
    clock.set_forward(301);
    eventually(|| (push(&gateway, "newcomer", "a", &[]).status == 200).then_some(()));
    // A ledger notices the last uses when it looks, which may be as late as now.
    clock.set_forward(602);
    // The queue of the settings, and those with something in them.
    eventually(|| (queues(&gateway) == 3).then_some(()));
    let metrics = eventually(|| {
        let metrics = gateway.get("/metrics").text;
        (!metrics.contains("queue=\"name7\"")).then_some(metrics)
    });
    assert!(metrics.contains("tidegate_queue_depth{queue=\"name0\",lane=\"normal\"} 1"), "{metrics}");
    balanced(&gateway, used);
    let headers = [("consumerGroup", "name7"), ("messageCount", "9"), ("consumed", "yes")];
    let viewed = exchange(gateway.address, "GET", "/queue/view", &headers, "");
    assert_eq!((viewed.status, viewed.json().as_array().unwrap().len()), (200, 1), "{viewed:?}");
    assert!(gateway.stop().success());
    let gateway = start(dir.path());
    assert_eq!(queues(&gateway), 3);
    assert_eq!(push(&gateway, "name7", "b", &[]).status, 200);
    assert_eq!(pop(&gateway, "name7", &[]).json()["content"], "b");
    balanced(&gateway, used + 1);
}

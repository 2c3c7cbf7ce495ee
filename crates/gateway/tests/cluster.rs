//! Three gateways and two senders on one PostgreSQL and one Redis, under load and faults, judged from outside.
//! `cargo xtask torture cluster` does the same for longer.

#![allow(clippy::unwrap_used)] // clippy sees no test in functions that tests share

use std::sync::{Mutex, PoisonError};

use tidegate_testkit::cluster::{Cluster, ClusterOptions, ClusterVerdict, Fault, Traffic};

/// One cluster at a time: five processes and two servers are as much as a small machine serves in time.
static TURN: Mutex<()> = Mutex::new(());

/// Between faults: enough to see that everything goes on.
const MESSAGES: usize = 50;

#[test]
fn gateways_and_redis_may_fail_and_nothing_is_sent_twice() {
    run(&[
        Fault::KillGateway(0),
        Fault::StopGateway(1),
        Fault::KillRedis,
        Fault::FlushRedis,
        Fault::StallRedis,
        Fault::KillGateway(2),
    ]);
}

#[test]
fn senders_may_fail_and_only_what_was_in_flight_is_repeated() {
    run(&[Fault::KillSender(0), Fault::StopSender(1), Fault::KillSender(1)]);
}

#[test]
fn the_database_may_fail_and_everybody_is_told_to_come_back() {
    run(&[Fault::KillDatabase, Fault::CutDatabase, Fault::StallDatabase]);
}

fn run(faults: &[Fault]) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(async {
        let mut cluster = Cluster::start(options()).await.unwrap();
        let repeats_max = faults.iter().map(|fault| fault.repeats_max(cluster.senders.len())).sum();
        let traffic = Traffic::start(&cluster).await.unwrap();
        traffic.progress(&cluster, MESSAGES).await.unwrap();
        for fault in faults {
            let ready = cluster.suffer(*fault).await.unwrap_or_else(|error| panic!("{fault:?}: {error:#}"));
            eprintln!("{fault:?}: ready after {ready:?}");
            traffic.progress(&cluster, MESSAGES).await.unwrap_or_else(|error| panic!("{fault:?}: {error:#}"));
        }
        let (notes, totals) = traffic.finish(&cluster).await.unwrap();
        let verdict = ClusterVerdict::new(&notes, &cluster.provider.journal(), &totals, repeats_max);
        eprintln!("{verdict}");
        verdict.check().unwrap();
        assert_eq!(cluster.deadlocks().unwrap(), 0);
    });
}

fn options() -> ClusterOptions {
    ClusterOptions::new(env!("CARGO_BIN_EXE_tidegate"))
}

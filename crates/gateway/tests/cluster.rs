//! Three gateways and two senders on one PostgreSQL and one Redis, with and without a bus, under load and faults, judged from outside.
//! `cargo xtask torture cluster` does the same for longer.

#![allow(clippy::unwrap_used)] // clippy sees no test in functions that tests share

use std::sync::{Mutex, PoisonError};

use tidegate_testkit::cluster::{BusKind, Cluster, ClusterOptions, ClusterVerdict, Fault, Traffic};
use tidegate_testkit::services::NoKafka;

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

/// A broker that dies, stands still or repeats itself costs time: nothing is lost, late or sent twice by it.
#[test]
fn kafka_may_fail_and_nothing_is_sent_twice() {
    run_on(BusKind::Kafka, &[Fault::KillBus, Fault::StopBus, Fault::KillGateway(1), Fault::StopGateway(0)]);
}

#[test]
fn senders_of_kafka_may_fail_and_only_what_was_in_flight_is_repeated() {
    let all_again = Fault::ReplayBus;
    run_on(BusKind::Kafka, &[Fault::KillSender(0), Fault::StopSender(1), all_again, Fault::KillDatabase]);
}

#[test]
fn rabbitmq_may_fail_and_nothing_is_sent_twice() {
    run_on(BusKind::RabbitMq, &[Fault::KillBus, Fault::StopBus, Fault::FillBus, Fault::LoseBus]);
}

#[test]
fn senders_of_rabbitmq_may_fail_and_only_what_was_in_flight_is_repeated() {
    run_on(BusKind::RabbitMq, &[Fault::KillSender(0), Fault::StopSender(1), Fault::CutDatabase]);
}

fn run(faults: &[Fault]) {
    run_on(BusKind::None, faults);
}

fn run_on(bus: BusKind, faults: &[Fault]) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(async {
        let mut cluster = match Cluster::start(ClusterOptions { bus, ..options() }).await {
            Ok(cluster) => cluster,
            Err(error) if error.is::<NoKafka>() => return eprintln!("left out: on Kafka: {error}"),
            Err(error) => panic!("{error:#}"),
        };
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

//! A broker that dies, freezes, or is low on memory.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tidegate_domain::{Bus as _, BusError, BusHealth, Lane, MessageId};
use tidegate_rabbitmq::{Options, RabbitBus};
use tidegate_testkit::services::RabbitMq;
use tokio::time::timeout;

use crate::backend::{HANG, RabbitBackend, claim, publish, queue, receive_all, until};

/// A frozen broker never answers.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(2);
/// As in `claim`.
const RECIPIENTS: u64 = 5;
/// For what waits for nothing, on a machine that is busy: less than any deadline that it could wait for by mistake.
const MARGIN: Duration = Duration::from_secs(10);

fn is_away(health: &BusHealth) -> bool {
    matches!(health, BusHealth::Away(_))
}

fn is_blocked(health: &BusHealth) -> bool {
    matches!(health, BusHealth::Away(why) if why.contains("blocked"))
}

fn options(backend: &RabbitBackend) -> Options {
    Options { connect_timeout: CONNECT_TIMEOUT, publish_timeout: PUBLISH_TIMEOUT, ..backend.options.clone() }
}

/// Nobody takes it, and that is said in time: it does not wait for a broker that never answers.
async fn is_refused(bus: &RabbitBus, n: u64) -> BusError {
    let publishing = bus.publish(vec![claim(n, Lane::Normal)]);
    let results = timeout(PUBLISH_TIMEOUT + MARGIN, publishing).await.expect("an answer by the deadline");
    results.into_iter().next().expect("a result").expect_err("nobody took it")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_was_confirmed_survives_a_kill_and_comes_in_order() {
    let mut rabbitmq = tokio::task::spawn_blocking(|| RabbitMq::start().unwrap()).await.unwrap();
    let backend = RabbitBackend::on(&rabbitmq);
    let bus = RabbitBus::open(options(&backend)).await.unwrap();
    let mut consumer = bus.consumer(queue("sms")).await.unwrap();
    let over = AtomicBool::new(false);

    // Without a pause, so that there is always something under way when the broker dies.
    let publisher = async |own: u64| {
        let (mut confirmed, mut n) = (HashSet::new(), own);
        loop {
            let batch: Vec<_> = (0..20).map(|place| claim(n + place * RECIPIENTS, Lane::Normal)).collect();
            n += 20 * RECIPIENTS;
            let results = bus.publish(batch.clone()).await;
            let taken = batch.iter().zip(&results).filter(|(_, result)| result.is_ok());
            confirmed.extend(taken.map(|(claim, _)| claim.id));
            if results.iter().any(Result::is_err) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            } else if over.load(Ordering::SeqCst) {
                return (confirmed, n);
            }
        }
    };
    let publishing = join_all((0..RECIPIENTS).map(publisher));
    let killing = async {
        tokio::task::block_in_place(|| rabbitmq.settle()).unwrap();
        rabbitmq.kill().unwrap();
        until(&bus, is_away).await;
        let late = RabbitBus::open(options(&backend)).await.expect("a bus that is away opens");
        assert!(is_away(&late.health()));
        let rabbitmq = tokio::task::spawn_blocking(move || rabbitmq.restart().map(|()| rabbitmq));
        let rabbitmq = rabbitmq.await.unwrap().unwrap();
        until(&bus, |health| *health == BusHealth::Ready).await;
        until(&late, |health| *health == BusHealth::Ready).await;
        over.store(true, Ordering::SeqCst);
        rabbitmq
    };
    let receiving = async {
        let mut received = Vec::new();
        while !over.load(Ordering::SeqCst) {
            match consumer.receive(100, 100).await {
                Ok(claims) => received.extend(claims),
                // It finds back by itself; meanwhile we don't spin.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
            let _ = consumer.done().await;
        }
        received
    };
    let (published, _rabbitmq, mut received) =
        timeout(4 * HANG, async { tokio::join!(publishing, killing, receiving) }).await.unwrap();
    let n = published.iter().map(|(_, n)| *n).max().unwrap();
    let confirmed: HashSet<_> = published.into_iter().flat_map(|(confirmed, _)| confirmed).collect();
    publish(&bus, &[claim(n, Lane::Normal)]).await;
    let seen: HashSet<MessageId> = received.iter().map(|claim| claim.id).collect();
    let mut missing: HashSet<_> = confirmed.difference(&seen).copied().collect();
    missing.insert(claim(n, Lane::Normal).id);
    received.extend(receive_all(&mut *consumer, &missing).await);

    // Repetitions apart, each recipient's came in the order they were published.
    let (mut seen, mut last) = (HashSet::new(), HashMap::new());
    for claim in received.into_iter().filter(|claim| seen.insert(claim.id)) {
        let before = last.insert(claim.recipient.clone(), claim.id);
        assert!(before.is_none_or(|before| before < claim.id), "{claim:?} came after {before:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_broker_is_away_and_is_back_when_it_thaws() {
    let rabbitmq = tokio::task::spawn_blocking(|| RabbitMq::start().unwrap()).await.unwrap();
    let bus = RabbitBus::open(options(&RabbitBackend::on(&rabbitmq))).await.unwrap();
    let mut consumer = bus.consumer(queue("sms")).await.unwrap();
    publish(&bus, &[claim(1, Lane::Normal)]).await;
    rabbitmq.stop().unwrap();
    assert!(matches!(is_refused(&bus, 2).await, BusError::Away(_)));
    until(&bus, is_away).await;
    assert!(matches!(is_refused(&bus, 3).await, BusError::Away(_)));
    let receiving = async { while consumer.receive(1, 100).await.is_ok() {} };
    timeout(HANG, receiving).await.expect("a consumer hears of it");
    let waiting = consumer.receive(1, 100);
    assert!(timeout(MARGIN, waiting).await.expect("nobody waits for longer than asked").is_err());
    rabbitmq.resume().unwrap();
    until(&bus, |health| *health == BusHealth::Ready).await;
    publish(&bus, &[claim(4, Lane::Normal)]).await;
    receive_all(&mut *consumer, &[1, 4].map(|n| claim(n, Lane::Normal).id).into()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_freezes_while_nobody_publishes_is_away() {
    let rabbitmq = tokio::task::spawn_blocking(|| RabbitMq::start().unwrap()).await.unwrap();
    let bus = RabbitBus::open(options(&RabbitBackend::on(&rabbitmq))).await.unwrap();
    rabbitmq.stop().unwrap();
    until(&bus, is_away).await;
    rabbitmq.resume().unwrap();
    until(&bus, |health| *health == BusHealth::Ready).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_low_on_memory_says_so_takes_nothing_and_gives_what_it_has() {
    let rabbitmq = tokio::task::spawn_blocking(|| RabbitMq::start().unwrap()).await.unwrap();
    let backend = RabbitBackend::on(&rabbitmq);
    let bus = RabbitBus::open(options(&backend)).await.unwrap();
    let mut consumer = bus.consumer(queue("sms")).await.unwrap();
    publish(&bus, &[claim(1, Lane::Normal)]).await;
    rabbitmq.alarm(true).unwrap();
    let BusHealth::Away(why) = until(&bus, is_blocked).await else { panic!("it is not away") };
    assert!(why.contains("low on memory"), "{why}");
    assert!(matches!(is_refused(&bus, 2).await, BusError::Away(_)));
    receive_all(&mut *consumer, &[claim(1, Lane::Normal).id].into()).await;
    // Whoever comes now learns it too.
    let late = RabbitBus::open(options(&backend)).await.unwrap();
    until(&late, is_blocked).await;
    rabbitmq.alarm(false).unwrap();
    for bus in [&bus, &late] {
        until(bus, |health| *health == BusHealth::Ready).await;
        publish(bus, &[claim(3, Lane::Normal)]).await;
    }
    receive_all(&mut *consumer, &[claim(3, Lane::Normal).id].into()).await;
}

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use tidegate_domain::{Bus, BusError, Claim, Consumer, MessageId};
use tidegate_kafka::{KafkaBus, Options};
use tidegate_testkit::bus::{queue, receive};
use tidegate_testkit::services::KafkaOptions;

use super::backend::Backend;
use super::{claims, in_time, kafka, receive_all, until_away, until_ready};

const BATCH: u64 = 20;

async fn short_of_patience(backend: &Backend) -> KafkaBus {
    KafkaBus::open(Options { publish_ms: 3_000, open_ms: 3_000, ..backend.options() })
        .await
        .expect("the bus opens")
}

/// Publishes until told to stop. What was confirmed.
async fn publish(bus: Arc<dyn Bus>, count: Arc<AtomicU64>, stop: Arc<AtomicBool>) -> Vec<Claim> {
    let mut confirmed = Vec::new();
    for batch in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let batch = claims(batch * BATCH..(batch + 1) * BATCH);
        let results = bus.publish(batch.clone()).await;
        let kept = batch.into_iter().zip(results).filter(|(_, result)| result.is_ok());
        confirmed.extend(kept.map(|(claim, _)| claim));
        count.store(confirmed.len() as u64, Ordering::SeqCst);
        tokio::task::yield_now().await;
    }
    confirmed
}

/// Receives until all of these have come, in the order of their first coming.
async fn consume(
    mut consumer: Box<dyn Consumer>,
    publisher: tokio::task::JoinHandle<Vec<Claim>>,
) -> Vec<Claim> {
    let (mut seen, mut received, mut confirmed) = (HashSet::new(), Vec::new(), None);
    let mut publisher = Some(publisher);
    loop {
        for claim in consumer.receive(50, 100).await.unwrap_or_default() {
            if seen.insert(claim.id) {
                received.push(claim);
            }
        }
        // Away is told by receiving too.
        let _ = consumer.done().await;
        if publisher.as_ref().is_some_and(tokio::task::JoinHandle::is_finished) {
            confirmed = publisher.take().expect("it was there").await.ok();
        }
        if confirmed.as_ref().is_some_and(|all: &Vec<Claim>| all.iter().all(|claim| seen.contains(&claim.id)))
        {
            return received;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_confirmed_is_received_though_the_broker_is_killed() {
    let Some(mut kafka) = kafka(&KafkaOptions::default()) else { return };
    let backend = Backend::new(kafka.bootstrap());
    let bus: Arc<dyn Bus> = Arc::new(short_of_patience(&backend).await);
    let (count, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let publisher = tokio::spawn(publish(bus.clone(), count.clone(), stop.clone()));
    let consumer = bus.consumer(queue("sms")).await.unwrap();
    let consumer = tokio::spawn(consume(consumer, publisher));
    let confirmed = |more: u64| {
        let (count, wanted) = (count.clone(), count.load(Ordering::SeqCst) + more);
        in_time("records are confirmed", async move {
            while count.load(Ordering::SeqCst) < wanted {
                tokio::task::yield_now().await;
            }
        })
    };
    for _ in 0..2 {
        confirmed(500).await;
        kafka.kill().unwrap();
        until_away(&*bus).await;
        kafka = tokio::task::spawn_blocking(|| {
            kafka.restart().unwrap();
            kafka
        })
        .await
        .unwrap();
        let begun = Instant::now();
        until_ready(&*bus).await;
        println!("ready {:?} after the broker", begun.elapsed());
    }
    confirmed(500).await;
    stop.store(true, Ordering::SeqCst);
    let received = in_time("what was confirmed is received", consumer).await.unwrap();
    let mut last: HashMap<_, MessageId> = HashMap::new();
    for claim in received {
        let before = last.insert(claim.recipient.clone(), claim.id);
        assert!(before.is_none_or(|before| before < claim.id), "{claim:?} came after {before:?}");
    }
}

/// Receives nothing until it is told that Kafka is away.
async fn is_told(consumer: &mut dyn Consumer) {
    loop {
        match consumer.receive(9, 100).await {
            Err(BusError::Away(_)) => return,
            other => assert_eq!(other, Ok(vec![])),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_freezes_is_away_and_one_that_thaws_is_ready() {
    let Some(kafka) = kafka(&KafkaOptions::default()) else { return };
    let backend = Backend::new(kafka.bootstrap());
    let bus = short_of_patience(&backend).await;
    let mut consumer = bus.consumer(queue("sms")).await.unwrap();
    until_ready(&bus).await;
    in_time("the first records", async {
        assert_eq!(bus.publish(claims(0..50)).await, vec![Ok(()); 50]);
        receive(&mut *consumer, 50).await;
    })
    .await;

    kafka.stop().unwrap();
    let begun = Instant::now();
    until_away(&bus).await;
    println!("away {:?} after the broker froze", begun.elapsed());
    let begun = Instant::now();
    let results = in_time("an answer", bus.publish(claims(50..60))).await;
    println!("answered after {:?}", begun.elapsed());
    assert!(results.iter().all(|result| matches!(result, Err(BusError::Away(_)))), "{results:?}");
    // That a topic has no leader keeps nobody from receiving; that there is no broker, the watch may find out later.
    in_time("whoever receives is told", is_told(&mut *consumer)).await;
    // Whether that is an error depends on whether the group has given up on us already.
    let _ = in_time("an answer", consumer.done()).await;

    kafka.resume().unwrap();
    let begun = Instant::now();
    until_ready(&bus).await;
    println!("ready {:?} after the broker thawed", begun.elapsed());
    let more = claims(60..90);
    assert_eq!(in_time("records are confirmed", bus.publish(more.clone())).await, vec![Ok(()); 30]);
    receive_all(&mut *consumer, more).await;
    assert_eq!(in_time("a commit", consumer.done()).await, Ok(()));
}

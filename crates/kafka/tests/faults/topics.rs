use std::time::Duration;

use rdkafka::admin::AdminOptions;
use tidegate_domain::{Bus, BusError, BusHealth};
use tidegate_kafka::{KafkaBus, Options};
use tidegate_testkit::bus::{queue, receive};
use tokio::time::{sleep, timeout};

use super::backend::Backend;
use super::{admin, claims, in_time, receive_all, received, shared, until, until_ready};

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_deleted_is_made_again() {
    let Some(kafka) = shared() else { return };
    let backend = Backend::new(kafka.bootstrap());
    let bus =
        KafkaBus::open(Options { publish_ms: 3_000, open_ms: 3_000, ..backend.options() }).await.unwrap();
    let mut consumer = bus.consumer(queue("sms")).await.unwrap();
    until_ready(&bus).await;
    in_time("the first records", async {
        assert_eq!(bus.publish(claims(0..20)).await, vec![Ok(()); 20]);
        receive(&mut *consumer, 20).await;
    })
    .await;
    assert_eq!(in_time("a commit", consumer.done()).await, Ok(()));

    let topics = backend.options().routes.names();
    let topics: Vec<_> = topics.iter().map(String::as_str).collect();
    admin(kafka).delete_topics(&topics, &AdminOptions::new()).await.unwrap();
    // What is published meanwhile is refused, or lost with the old topic, or lies in the new one before the place where
    // the consumer had got to in the old. Sooner or later a batch comes through.
    let mut number = 100;
    in_time("records come through again", async {
        loop {
            let batch = claims(number..number + 20);
            number += 20;
            let results = bus.publish(batch.clone()).await;
            let received = timeout(Duration::from_secs(3), received(&mut *consumer, batch));
            if results.iter().all(Result::is_ok) && received.await.is_ok() {
                return;
            }
        }
    })
    .await;
    until_ready(&bus).await;
    assert_eq!(in_time("a commit", consumer.done()).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_cannot_be_made_is_named() {
    let Some(kafka) = shared() else { return };
    let backend = Backend::new(kafka.bootstrap());
    let options = Options { replication: Some(3), publish_ms: 2_000, open_ms: 2_000, ..backend.options() };
    let bus = KafkaBus::open(options).await.unwrap();
    let told = |health: &BusHealth| matches!(health, BusHealth::Away(why) if why.contains("can't be made"));
    let BusHealth::Away(why) = until(&bus, "it is named", told).await else { unreachable!() };
    assert!(why.contains(&backend.prefix), "{why}");
    assert!(why.to_lowercase().contains("replication factor"), "{why}");
    let results = in_time("an answer", bus.publish(claims(0..1))).await;
    assert!(
        matches!(&results[..], [Err(BusError::Refused(why))] if why.contains(&backend.sms())),
        "{results:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_is_reset_receives_everything_again() {
    let Some(kafka) = shared() else { return };
    let backend = Backend::new(kafka.bootstrap());
    let bus = backend.bus().await;
    in_time("records are confirmed", async {
        assert_eq!(bus.publish(claims(0..100)).await, vec![Ok(()); 100]);
    })
    .await;
    let mut consumer = bus.consumer(queue("sms")).await.unwrap();
    receive_all(&mut *consumer, claims(0..100)).await;
    assert_eq!(in_time("a commit", consumer.done()).await, Ok(()));
    drop(consumer);
    let group = format!("{}.sms", backend.prefix);
    in_time("the group is deleted", async {
        let gone = async || admin(kafka).delete_groups(&[&group], &AdminOptions::new()).await.unwrap();
        while gone().await.iter().any(Result::is_err) {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let mut consumer = bus.consumer(queue("sms")).await.unwrap();
    receive_all(&mut *consumer, claims(0..100)).await;
    until_ready(&bus).await;
}

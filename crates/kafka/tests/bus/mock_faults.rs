use std::time::Duration;

use rdkafka::types::{RDKafkaApiKey as Api, RDKafkaRespErr as Error};
use tidegate_bus::Routes;
use tidegate_domain::{Bus, BusError, BusHealth, Claim, Consumer};
use tidegate_kafka::{KafkaBus, Options};
use tidegate_testkit::HANG;
use tidegate_testkit::bus::{claim, queue, receive};
use tokio::time::{sleep, timeout};

use super::mock::Mock;

fn claims(range: std::ops::Range<u64>) -> Vec<Claim> {
    range.map(|n| claim(n, "a")).collect()
}

async fn until(bus: &impl Bus, wanted: impl Fn(BusHealth) -> bool) {
    let turned = async {
        while !wanted(bus.health()) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(HANG, turned).await.unwrap_or_else(|_| panic!("still {:?}", bus.health()));
}

/// All of these, some perhaps twice, whatever errors the consumer tells meanwhile.
async fn receive_despite_errors(consumer: &mut dyn Consumer, mut wanted: Vec<Claim>) {
    let received = async {
        while !wanted.is_empty() {
            let claims = consumer.receive(99, 500).await.unwrap_or_default();
            wanted.retain(|claim| !claims.contains(claim));
        }
    };
    let all = timeout(HANG, received).await.is_ok();
    assert!(all, "published and not received: {wanted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_that_pass_are_not_noticed_by_whoever_publishes() {
    let (mock, backend) = Mock::with_backend();
    let bus = backend.bus().await;
    mock.with(|mock| {
        let errors = [
            Error::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
            Error::RD_KAFKA_RESP_ERR__TRANSPORT,
            Error::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        ];
        mock.request_errors(Api::Produce, &errors);
    });
    for batch in claims(0..40).chunks(10) {
        assert_eq!(bus.publish(batch.to_vec()).await, vec![Ok(()); 10]);
    }
    let mut consumer = bus.consumer(queue("sms")).await.unwrap();
    assert_eq!(receive(&mut *consumer, 40).await, claims(0..40), "all of them, once, and in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_that_stay_are_told_and_what_follows_is_published() {
    let (mock, backend) = Mock::with_backend();
    let bus = backend.bus().await;
    mock.with(|mock| {
        mock.request_errors(Api::Produce, &[Error::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE]);
    });
    let results = bus.publish(claims(0..1)).await;
    assert!(matches!(&results[..], [Err(BusError::Refused(why))] if why.contains("sms")), "{results:?}");
    let results = bus.publish(claims(1..3)).await;
    assert_eq!(results, [Ok(()), Ok(())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_receives_gets_over_failed_fetches() {
    let (mock, backend) = Mock::with_backend();
    let bus = backend.bus().await;
    let mut consumer = bus.consumer(queue("sms")).await.unwrap();
    assert_eq!(bus.publish(claims(0..10)).await, vec![Ok(()); 10]);
    assert_eq!(receive(&mut *consumer, 10).await, claims(0..10));
    mock.with(|mock| {
        let errors = [
            Error::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
            Error::RD_KAFKA_RESP_ERR__TRANSPORT,
            Error::RD_KAFKA_RESP_ERR_UNKNOWN,
        ];
        mock.request_errors(Api::Fetch, &errors);
    });
    assert_eq!(bus.publish(claims(10..20)).await, vec![Ok(()); 10]);
    assert_eq!(receive(&mut *consumer, 10).await, claims(10..20));
}

/// After an outage a coordinator may move just when a member asks for its committed offsets. The client asks once.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_receives_gets_over_committed_offsets_that_are_not_told() {
    let (mock, backend) = Mock::with_backend();
    let bus = backend.bus().await;
    mock.with(|mock| mock.request_errors(Api::OffsetFetch, &[Error::RD_KAFKA_RESP_ERR_NOT_COORDINATOR]));
    let mut consumer = bus.consumer(queue("sms")).await.unwrap();
    assert_eq!(bus.publish(claims(0..10)).await, vec![Ok(()); 10]);
    // The client is replaced by one that asks again.
    receive_despite_errors(&mut *consumer, claims(0..10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_goes_is_noticed_and_one_that_returns_too() {
    let (mock, backend) = Mock::with_backend();
    let bus =
        KafkaBus::open(Options { publish_ms: 2_000, open_ms: 2_000, ..backend.options() }).await.unwrap();
    let mut consumer = bus.consumer(queue("sms")).await.unwrap();
    assert_eq!(bus.publish(claims(0..10)).await, vec![Ok(()); 10]);
    assert_eq!(receive(&mut *consumer, 10).await, claims(0..10));

    mock.with(|mock| mock.broker_down(-1).expect("it goes"));
    let results = timeout(HANG, bus.publish(claims(10..12))).await.expect("it answers");
    assert!(results.iter().all(|result| matches!(result, Err(BusError::Away(_)))), "{results:?}");
    until(&bus, |health| health != BusHealth::Ready).await;
    // Trouble of a topic keeps nobody from receiving; that there is no broker, the watch may find out later.
    let told = async {
        loop {
            match consumer.receive(9, 50).await {
                Err(BusError::Away(_)) => return,
                other => assert_eq!(other, Ok(vec![])),
            }
        }
    };
    timeout(HANG, told).await.expect("the consumer is told");

    mock.with(|mock| mock.broker_up(-1).expect("it returns"));
    until(&bus, |health| health == BusHealth::Ready).await;
    assert_eq!(bus.publish(claims(20..30)).await, vec![Ok(()); 10]);
    receive_despite_errors(&mut *consumer, claims(20..30)).await;
}

/// A gateway listens and accepts meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn the_opening_does_not_wait_as_long_as_a_publication_may_take() {
    let routes = Routes::new([(queue("sms"), "sms".to_owned())]);
    // Nothing listens there.
    let options = Options { publish_ms: 10 * 60 * 1_000, ..Options::new("127.0.0.1:1".to_owned(), routes) };
    let bus = timeout(HANG, KafkaBus::open(options)).await.expect("it is open").unwrap();
    assert!(matches!(bus.health(), BusHealth::Away(_)));
}

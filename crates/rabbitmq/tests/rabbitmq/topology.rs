//! What the broker has, and who may use it.

use lapin::ExchangeKind;
use lapin::options::{ExchangeDeclareOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable};
use tidegate_domain::{Bus as _, BusError, BusHealth, Lane};
use tidegate_rabbitmq::{OpenError, Options, RabbitBus};
use tokio::time::timeout;

use crate::backend::{HANG, RabbitBackend, claim, publish, queue, receive_all, until};

async fn refused(options: &Options) -> String {
    RabbitBus::open(options.clone()).await.expect_err("it is refused").to_string()
}

#[tokio::test]
async fn a_queue_that_differs_is_refused_and_the_difference_named() {
    let backend = RabbitBackend::shared();
    let (_connection, channel) = backend.stranger().await;
    let low = format!("{}.low", backend.name());
    let mut arguments = FieldTable::default();
    let text = |text: String| AMQPValue::LongString(text.into());
    arguments.insert("x-queue-type".into(), text("quorum".to_owned()));
    arguments.insert("x-dead-letter-exchange".into(), text(format!("{}.dead", backend.options.exchange)));
    arguments.insert("x-dead-letter-routing-key".into(), text(format!("{}.dead", backend.name())));
    arguments.insert("x-delivery-limit".into(), AMQPValue::LongInt(5));
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(low.as_str().into(), options, arguments).await.unwrap();
    let error = refused(&backend.options).await;
    assert!(error.contains(&format!("the queue {low:?} is already there")), "{error}");
    assert!(error.contains("x-delivery-limit is 5, and would be 20"), "{error}");
    channel.queue_delete(low.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
    assert_eq!(backend.bus().await.health(), BusHealth::Ready);
}

#[tokio::test]
async fn an_exchange_that_differs_is_refused_and_the_difference_named() {
    let backend = RabbitBackend::shared();
    let (_connection, channel) = backend.stranger().await;
    let (name, options) = (backend.options.exchange.as_str(), ExchangeDeclareOptions::default());
    channel.exchange_declare(name.into(), ExchangeKind::Topic, options, FieldTable::default()).await.unwrap();
    let error = refused(&backend.options).await;
    assert!(error.contains(&format!("the exchange {name:?} is already there")), "{error}");
    assert!(error.contains("type is topic, and would be direct"), "{error}");
}

#[tokio::test]
async fn a_login_that_is_refused_is_told_without_the_password() {
    let backend = RabbitBackend::shared();
    let url = backend.options.url.replace("guest:guest", "guest:open-sesame");
    let error = refused(&Options { url, ..backend.options.clone() }).await;
    assert!(error.contains("does not let \"guest\" in"), "{error}");
    assert!(!error.contains("sesame"), "{error}");
    let url = backend.options.url.replace("%2f", "nowhere");
    let error = RabbitBus::open(Options { url, ..backend.options.clone() }).await.unwrap_err();
    assert!(matches!(&error, OpenError::Refused { said, .. } if said.contains("nowhere")), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_queue_is_declared_anew_and_received_from_again() {
    let backend = RabbitBackend::shared();
    let bus = backend.bus().await;
    let mut consumer = bus.consumer(queue("sms")).await.unwrap();
    publish(&bus, &[claim(1, Lane::Normal)]).await;
    receive_all(&mut *consumer, &[claim(1, Lane::Normal).id].into()).await;
    let (_connection, channel) = backend.stranger().await;
    channel.queue_delete(backend.name().into(), QueueDeleteOptions::default()).await.unwrap();
    // Were the queue there again before the broker has told the consumer, it would tell nothing.
    let hearing = async { while consumer.receive(1, 100).await.is_ok() {} };
    timeout(HANG, hearing).await.expect("the consumer hears of it");
    publish(&bus, &[claim(2, Lane::Normal)]).await;
    assert_eq!(receive_all(&mut *consumer, &[claim(2, Lane::Normal).id].into()).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_queue_takes_is_refused_and_nothing_else() {
    let backend = RabbitBackend::shared();
    let (_connection, channel) = backend.stranger().await;
    let lane = |n: u64| if n % 9 == 1 { Lane::High } else { Lane::Normal };
    let batch: Vec<_> = (0..5_000).map(|n| claim(n, lane(n))).collect();
    let mut refused = 0;
    for _ in 0..3 {
        // A bus of its own: were the queue deleted while the bus declares it anew, the broker would end the connection.
        let bus = backend.bus().await;
        let high = format!("{}.high", backend.name());
        channel.queue_delete(high.into(), QueueDeleteOptions::default()).await.unwrap();
        let results = bus.publish(batch.clone()).await;
        for (claim, result) in batch.iter().zip(&results) {
            match result {
                // Or it came after the queue was back.
                Ok(()) => {}
                Err(BusError::Refused(_)) if claim.lane == Lane::High => refused += 1,
                other => panic!("{claim:?}: {other:?}"),
            }
        }
        let taken =
            (batch.iter().zip(&results)).filter(|(_, result)| result.is_ok()).map(|(claim, _)| claim.id);
        let taken = taken.collect();
        let mut consumer = bus.consumer(queue("sms")).await.unwrap();
        receive_all(&mut *consumer, &taken).await;
        until(&bus, |health| *health == BusHealth::Ready).await;
    }
    assert!(refused > 0, "nothing was refused");
}

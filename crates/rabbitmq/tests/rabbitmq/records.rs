//! What others see of the records.

use lapin::Channel;
use lapin::message::BasicGetMessage;
use lapin::options::{BasicGetOptions, BasicNackOptions};
use lapin::types::AMQPValue;
use tidegate_domain::{Bus as _, Lane};
use tidegate_testkit::bus::BusBackend as _;
use tokio::time::timeout;

use crate::backend::{HANG, RabbitBackend, claim, publish, queue};

async fn get(channel: &Channel, name: &str) -> BasicGetMessage {
    let getting = async {
        loop {
            let got = channel.basic_get(name.into(), BasicGetOptions::default()).await;
            if let Some(message) = got.expect("an answer") {
                return message;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(HANG, getting).await.expect("a record")
}

#[tokio::test]
async fn a_record_is_persistent_json_with_its_trace_its_key_and_its_id() {
    let backend = RabbitBackend::shared();
    let bus = backend.bus().await;
    publish(&bus, &[claim(7, Lane::High)]).await;
    let (_connection, channel) = backend.stranger().await;
    let message = get(&channel, &format!("{}.high", backend.name())).await;
    let properties = &message.delivery.properties;
    assert_eq!(*properties.delivery_mode(), Some(2));
    assert_eq!(properties.content_type().as_ref().unwrap().as_str(), "application/json");
    assert_eq!(properties.message_id().as_ref().unwrap().as_str(), claim(7, Lane::High).id.to_string());
    let headers = properties.headers().as_ref().unwrap().inner();
    assert_eq!(headers["recipient"], AMQPValue::LongString("r-2".into()));
    let AMQPValue::LongString(trace) = &headers["traceparent"] else { panic!("{headers:?}") };
    assert_eq!(trace.as_bytes().len(), 55);
    assert!(message.delivery.data.starts_with(b"{"));
}

#[tokio::test]
async fn what_can_t_be_read_ends_in_the_dead_queue() {
    let backend = RabbitBackend::shared();
    let bus = backend.bus().await;
    let mut consumer = bus.consumer(queue("sms")).await.unwrap();
    let mut foreign = claim(1, Lane::Normal);
    foreign.queue = queue("jobs");
    let strange = [b"SMS SENT".to_vec(), tidegate_bus::encode(&foreign, 9_999)];
    for bytes in &strange {
        backend.put(bytes).await.unwrap();
    }
    let (_connection, channel) = backend.stranger().await;
    let dead = format!("{}.dead", backend.name());
    let receiving = async {
        loop {
            let received = consumer.receive(9, 100).await;
            if received != Ok(vec![]) {
                return received;
            }
        }
    };
    let found = tokio::select! {
        found = async { [get(&channel, &dead).await, get(&channel, &dead).await] } => found,
        received = receiving => panic!("{received:?}"),
    };
    let found = found.map(|message| message.delivery.data);
    assert!(strange.iter().all(|bytes| found.contains(bytes)), "{found:?}");
}

#[tokio::test]
async fn what_is_delivered_again_and_again_ends_in_the_dead_queue() {
    let backend = RabbitBackend::shared();
    let bus = backend.bus().await;
    publish(&bus, &[claim(1, Lane::Low)]).await;
    let (_connection, channel) = backend.stranger().await;
    let low = format!("{}.low", backend.name());
    for _ in 0..21 {
        let message = get(&channel, &low).await;
        let options = BasicNackOptions { requeue: true, ..BasicNackOptions::default() };
        channel.basic_nack(message.delivery.delivery_tag, options).await.unwrap();
    }
    get(&channel, &format!("{}.dead", backend.name())).await;
}

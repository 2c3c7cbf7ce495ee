//! What each broker's own client publishes per second, with the promises that the bus asks for, and nothing else to do.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures_util::future::try_join_all;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Connection, ConnectionProperties};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::producer::{FutureProducer, FutureRecord};
use tidegate_testkit::cluster::Broker;

use super::count;

/// As large as the record of a message of 200 bytes.
const RECORD_BYTES: usize = 480;
/// Records that wait for their confirmation at the same time: as many as the relay allows.
const IN_FLIGHT: usize = 4 * 1_024;
/// As many as our topics have.
const PARTITIONS: i32 = 12;
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn publish(broker: &Broker, messages: usize, topic: &str) -> anyhow::Result<f64> {
    let record = vec![b'x'; RECORD_BYTES];
    let elapsed = match broker {
        Broker::Kafka(kafka) => to_kafka(&kafka.bootstrap(), topic, messages, &record).await?,
        Broker::RabbitMq(rabbitmq) => to_rabbitmq(&rabbitmq.url(), topic, messages, &record).await?,
    };
    Ok(count(u64::try_from(messages)?) / elapsed.as_secs_f64())
}

async fn to_kafka(servers: &str, topic: &str, messages: usize, record: &[u8]) -> anyhow::Result<Duration> {
    let producer: FutureProducer = ClientConfig::new()
        .set("bootstrap.servers", servers)
        .set("acks", "all")
        .set("enable.idempotence", "true")
        .create()?;
    let send = |n: usize| {
        let (producer, key) = (producer.clone(), format!("r{n}"));
        async move {
            let record = FutureRecord::to(topic).key(&key).payload(record);
            producer.send(record, PATIENCE).await.map_err(|(error, _)| error)
        }
    };
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", servers).create()?;
    let made = NewTopic::new(topic, PARTITIONS, TopicReplication::Fixed(1));
    admin.create_topics([&made], &AdminOptions::new()).await?;
    // Finds it.
    send(0).await?;
    let begun = Instant::now();
    for first in (0..messages).step_by(IN_FLIGHT) {
        try_join_all((first..messages.min(first + IN_FLIGHT)).map(send)).await?;
    }
    Ok(begun.elapsed())
}

async fn to_rabbitmq(url: &str, queue: &str, messages: usize, record: &[u8]) -> anyhow::Result<Duration> {
    let connection = Connection::connect(url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let mut quorum = FieldTable::default();
    quorum.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(queue.into(), durable, quorum).await?;
    let properties = BasicProperties::default().with_delivery_mode(2);
    let mandatory = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let begun = Instant::now();
    for first in (0..messages).step_by(IN_FLIGHT) {
        let mut waiting = Vec::with_capacity(IN_FLIGHT);
        for _ in first..messages.min(first + IN_FLIGHT) {
            let publishing =
                channel.basic_publish("".into(), queue.into(), mandatory, record, properties.clone());
            waiting.push(publishing.await?);
        }
        let confirmed = tokio::time::timeout(PATIENCE, try_join_all(waiting)).await;
        let confirmed = confirmed.context("no confirmation")??;
        ensure!(confirmed.iter().all(lapin::Confirmation::is_ack), "not all were confirmed");
    }
    Ok(begun.elapsed())
}

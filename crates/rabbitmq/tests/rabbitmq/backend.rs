use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use tidegate_bus::Routes;
use tidegate_domain::{Bus, BusHealth, Claim, Consumer, Lane, MessageId, QueueName};
use tidegate_rabbitmq::{Options, RabbitBus};
use tidegate_testkit::bus::BusBackend;
use tidegate_testkit::services::RabbitMq;
use tokio::time::timeout;

/// No test waits for longer.
pub use tidegate_testkit::HANG;

/// An exchange of its own, and queues with names of their own.
#[derive(Debug)]
pub struct RabbitBackend {
    pub options: Options,
}

impl RabbitBackend {
    /// On the broker that this program's tests share.
    pub fn shared() -> Self {
        Self::on(RabbitMq::shared())
    }

    pub fn on(rabbitmq: &RabbitMq) -> Self {
        let exchange = rabbitmq.new_name();
        let route = |name| (queue(name), format!("{exchange}.{name}"));
        let routes = Routes::new(["sms", "jobs"].map(route));
        let options = Options {
            exchange: exchange.clone(),
            // Nothing here is about time, and the machine may be busy.
            connect_timeout: HANG,
            publish_timeout: HANG,
            ..Options::new(rabbitmq.url(), routes)
        };
        Self { options }
    }

    /// The normal lane of "sms".
    pub fn name(&self) -> String {
        format!("{}.sms", self.options.exchange)
    }

    pub async fn bus(&self) -> RabbitBus {
        RabbitBus::open(self.options.clone()).await.expect("the bus opens")
    }

    /// Somebody else's connection.
    pub async fn stranger(&self) -> (Connection, Channel) {
        let properties = ConnectionProperties::default();
        let connection = Connection::connect(&self.options.url, properties).await.expect("a connection");
        let channel = connection.create_channel().await.expect("a channel");
        (connection, channel)
    }
}

#[async_trait]
impl BusBackend for RabbitBackend {
    async fn open(&self) -> anyhow::Result<Arc<dyn Bus>> {
        Ok(Arc::new(RabbitBus::open(self.options.clone()).await?))
    }

    async fn put(&self, bytes: &[u8]) -> anyhow::Result<()> {
        let (_connection, channel) = self.stranger().await;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
        // The exchange without a name leads to the queue of that name.
        let publishing = channel.basic_publish("".into(), self.name().into(), options, bytes, properties);
        publishing.await?.await?;
        Ok(())
    }
}

pub fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a name")
}

/// The n-th record of "sms".
pub fn claim(n: u64, lane: Lane) -> Claim {
    Claim { lane, ..tidegate_testkit::bus::claim(n, &format!("r-{}", n % 5)) }
}

/// Receives and is done with it until all of these have come, whatever the broker does meanwhile.
pub async fn receive_all(consumer: &mut dyn Consumer, wanted: &HashSet<MessageId>) -> Vec<Claim> {
    let (mut missing, mut received) = (wanted.clone(), Vec::new());
    let receiving = async {
        while !missing.is_empty() {
            if let Ok(claims) = consumer.receive(100, 200).await {
                claims.iter().for_each(|claim| _ = missing.remove(&claim.id));
                received.extend(claims);
            }
            let _ = consumer.done().await;
            tokio::task::yield_now().await;
        }
    };
    let all = timeout(HANG, receiving).await.is_ok();
    assert!(all, "{} of {} did not come", missing.len(), wanted.len());
    received
}

/// Publishes until all of it is taken.
pub async fn publish(bus: &RabbitBus, claims: &[Claim]) {
    let publishing = async {
        let mut left = claims.to_vec();
        while !left.is_empty() {
            let results = bus.publish(left.clone()).await;
            left = left
                .into_iter()
                .zip(results)
                .filter_map(|(claim, result)| result.is_err().then_some(claim))
                .collect();
            tokio::task::yield_now().await;
        }
    };
    timeout(HANG, publishing).await.expect("all of it is taken");
}

/// Until the bus says that it is ready, or away for such a reason.
pub async fn until(bus: &RabbitBus, wanted: impl Fn(&BusHealth) -> bool) -> BusHealth {
    let waiting = async {
        loop {
            let health = bus.health();
            if wanted(&health) {
                return health;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = timeout(HANG, waiting).await;
    waited.unwrap_or_else(|_| panic!("still {:?}", bus.health()))
}

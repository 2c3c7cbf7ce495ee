use std::sync::Arc;

use async_trait::async_trait;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use tidegate_bus::Routes;
use tidegate_domain::{Bus, QueueName};
use tidegate_rabbitmq::{Options, RabbitBus};
use tidegate_testkit::bus::BusBackend;
use tidegate_testkit::services::RabbitMq;

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
        Self { options: Options { exchange: exchange.clone(), ..Options::new(rabbitmq.url(), routes) } }
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

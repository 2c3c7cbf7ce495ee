use std::time::Duration;

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Connection, ExchangeKind};
use tidegate_bus::Routes;
use tidegate_domain::{Lane, QueueName};

use crate::error::OpenError;

/// AMQP's 255 bytes, and room for what is appended: ".high", ".dead", ".probe".
const NAME_BYTES_MAX: usize = 245;

/// Deliveries of one record that nobody finished. Each reader that dies with it counts; one that kills its readers goes.
const DELIVERIES_MAX: i64 = 20;

/// What nobody looks at must not fill the disk: the oldest go first.
const DEAD_MAX: i64 = 10_000;

/// Before a queue that somebody has deleted is declared anew. The broker tells consumers that their queue has gone, but
/// not if it is there again by then: it moves them over, and takes the first records for ones that they have had.
pub const GONE_FOR: Duration = Duration::from_millis(500);

/// What has to be there: exchanges, queues, and what binds them.
#[derive(Debug)]
pub struct Topology {
    exchange: String,
    routes: Routes,
}

impl Topology {
    pub fn new(exchange: String, routes: Routes) -> Result<Self, OpenError> {
        let names = routes.names();
        let wrong = |name: &&String| {
            name.is_empty() || name.len() > NAME_BYTES_MAX || name.starts_with("amq.") || name.contains('\0')
        };
        if let Some(name) = std::iter::once(&exchange).chain(&names).find(wrong) {
            return Err(OpenError::BadName(name.clone()));
        }
        Ok(Self { exchange, routes })
    }

    pub fn contains(&self, queue: &QueueName) -> bool {
        self.routes.contains(queue)
    }

    pub fn exchange(&self) -> ShortString {
        self.exchange.as_str().into()
    }

    /// A lane's queue, which is also its routing key.
    pub fn lane(&self, queue: &QueueName, lane: Lane) -> Option<ShortString> {
        self.routes.name(queue, lane).map(ShortString::from)
    }

    /// A routing key that leads nowhere: what is published with it comes back.
    pub fn nowhere(&self) -> ShortString {
        format!("{}.probe", self.exchange).into()
    }

    /// What is there and fits is left as it is.
    pub async fn declare(&self, connection: &Connection) -> lapin::Result<()> {
        let channel = connection.create_channel().await?;
        self.declare_exchanges(&channel).await?;
        for queue in self.routes.queues() {
            self.declare_queues(&channel, queue).await?;
        }
        channel.close(200, "OK".into()).await
    }

    /// The part that a consumer of one queue needs.
    pub async fn declare_for(&self, connection: &Connection, queue: &QueueName) -> lapin::Result<()> {
        let channel = connection.create_channel().await?;
        self.declare_exchanges(&channel).await?;
        self.declare_queues(&channel, queue).await?;
        channel.close(200, "OK".into()).await
    }

    async fn declare_exchanges(&self, channel: &Channel) -> lapin::Result<()> {
        for name in [self.exchange(), self.dead_exchange()] {
            let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
            channel.exchange_declare(name, ExchangeKind::Direct, options, FieldTable::default()).await?;
        }
        Ok(())
    }

    async fn declare_queues(&self, channel: &Channel, queue: &QueueName) -> lapin::Result<()> {
        let Some(base) = self.routes.name(queue, Lane::Normal) else { return Ok(()) };
        let dead = ShortString::from(format!("{base}.dead"));
        let mut arguments = quorum();
        arguments.insert("x-max-length".into(), AMQPValue::LongLongInt(DEAD_MAX));
        declare_queue(channel, dead.clone(), arguments, self.dead_exchange()).await?;
        for name in Lane::ALL.into_iter().filter_map(|lane| self.lane(queue, lane)) {
            let mut arguments = quorum();
            let text = |text: &ShortString| AMQPValue::LongString(text.as_str().into());
            arguments.insert("x-dead-letter-exchange".into(), text(&self.dead_exchange()));
            arguments.insert("x-dead-letter-routing-key".into(), text(&dead));
            arguments.insert("x-delivery-limit".into(), AMQPValue::LongLongInt(DELIVERIES_MAX));
            declare_queue(channel, name, arguments, self.exchange()).await?;
        }
        Ok(())
    }

    fn dead_exchange(&self) -> ShortString {
        format!("{}.dead", self.exchange).into()
    }
}

fn quorum() -> FieldTable {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    arguments
}

/// Bound by its own name.
async fn declare_queue(
    channel: &Channel,
    name: ShortString,
    arguments: FieldTable,
    exchange: ShortString,
) -> lapin::Result<()> {
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(name.clone(), options, arguments).await?;
    let key = name.clone();
    channel.queue_bind(name, exchange, key, QueueBindOptions::default(), FieldTable::default()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_amqp_can_t_have_are_refused_beforehand() {
        let sms = QueueName::new("sms").unwrap();
        let make = |exchange: &str, name: &str| {
            Topology::new(exchange.to_owned(), Routes::new([(sms.clone(), name.to_owned())])).map(drop)
        };
        assert_eq!(make("tidegate", "sms"), Ok(()));
        let long = "x".repeat(300);
        for (exchange, name) in [("", "sms"), ("amq.direct", "sms"), (&long, "sms"), ("tidegate", &long)] {
            assert!(matches!(make(exchange, name), Err(OpenError::BadName(_))), "{exchange} {name}");
        }
    }
}

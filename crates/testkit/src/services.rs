//! Real servers for tests: private, on free ports, in directories of their own. They end with whoever started them,
//! however that ends.

mod directory;
mod kafka;
mod package;
mod postgres;
mod proxy;
mod rabbitmq;
mod redis;
mod tied;
mod wrong_clock;

pub(crate) use directory::log_path;
pub use kafka::{Kafka, KafkaOptions, NoKafka};
pub use package::program;
pub use postgres::{Postgres, PostgresOptions};
pub use proxy::FaultyProxy;
pub use rabbitmq::{RabbitMq, RabbitMqOptions};
pub use redis::{Cluster, Redis, RedisOptions};
pub use tied::Tied;
pub use wrong_clock::wrong_clock;

//! Real servers for tests: private, on free ports, in directories of their own. They end with whoever started them,
//! however that ends.

mod package;
mod postgres;
mod proxy;
mod redis;
mod tied;

pub use package::program;
pub use postgres::{Postgres, PostgresOptions};
pub use proxy::FaultyProxy;
pub use redis::{Cluster, Redis, RedisOptions};
pub use tied::Tied;

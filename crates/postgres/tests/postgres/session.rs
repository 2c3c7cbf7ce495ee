//! A session beside the ledger's own, to stand in its way at a chosen moment.

use std::time::Duration;

use tidegate_domain::Timestamp;
use tidegate_testkit::HANG;
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;

use crate::backend::PostgresBackend;

pub struct Session(pub Client);

impl Session {
    pub async fn open(backend: &PostgresBackend) -> Self {
        let client = backend.client().await.unwrap();
        client.batch_execute("SET search_path TO tidegate").await.unwrap();
        Self(client)
    }

    pub async fn run(&self, sql: &str) {
        self.0.batch_execute(sql).await.unwrap();
    }

    pub async fn number(&self, sql: &str) -> i64 {
        self.0.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// Where the test holds the clock.
    pub async fn set_time(&self, now: Timestamp) {
        self.run(&format!("SET tidegate.test_now = '{}'", now.millis())).await;
    }

    /// How many others of this database wait for locks.
    pub async fn blocked(&self) -> i64 {
        let sql = "SELECT count(*) FROM pg_stat_activity \
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
        self.number(sql).await
    }

    /// Until so many others of this database wait for locks.
    pub async fn until_blocked(&self, count: i64) {
        let blocked = async {
            while self.blocked().await < count {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(HANG, blocked).await.expect("a session waits for a lock");
    }
}

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_domain::Clock as _;
use tidegate_domain::transfer::{Export, Import, Manifest};
use tidegate_postgres::{Options, Postgres, SessionHook};
use tidegate_testkit::HANG;
use tidegate_testkit::services;
use tidegate_testkit::{Backend, Opened, Setup, TestClock};
use tokio_postgres::{Client, NoTls};

/// The ledger's one door to time, held open by the test: every session is told the time before it is used. To the
/// planner it is as volatile as the server's clock: a statement must not look better here than it is.
pub const TEST_CLOCK: &str = "CREATE OR REPLACE FUNCTION tidegate.now_ms() RETURNS bigint LANGUAGE plpgsql VOLATILE \
                          AS $$ BEGIN RETURN current_setting('tidegate.test_now')::bigint; END $$";

/// A database of its own for each case, copied from one that is migrated.
pub struct PostgresBackend {
    pub database: String,
}

static TEMPLATE: LazyLock<String> = LazyLock::new(|| {
    let server = services::Postgres::shared();
    let name = format!("template_{}", server.new_name());
    server.sql("postgres", &format!("CREATE DATABASE {name}")).expect("a database");
    let options = Options { allow_unsafe_server: true, ..Options::new(server.url(&name)) };
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        // Opened once: migrated, and with its first partitions.
        runtime.block_on(Postgres::open(options)).expect("a ledger");
    })
    .join()
    .expect("migrated");
    server.sql(&name, TEST_CLOCK).expect("the test's clock");
    name
});

impl PostgresBackend {
    pub fn new() -> Self {
        let server = services::Postgres::shared();
        let database = server.new_name();
        let copy = format!("CREATE DATABASE {database} TEMPLATE {}", *TEMPLATE);
        server.sql("postgres", &copy).expect("a database");
        Self { database }
    }

    /// An empty database: whoever opens the ledger first migrates it, and time is the server's.
    pub fn empty() -> Self {
        let server = services::Postgres::shared();
        let database = server.new_name();
        server.sql("postgres", &format!("CREATE DATABASE {database}")).expect("a database");
        Self { database }
    }

    /// As many ledgers on the one database as there are gateways, in real time.
    pub async fn gateways(&self, count: usize, adjust: impl Fn(&mut Options)) -> Vec<Arc<Postgres>> {
        let opened = futures_util::future::join_all((0..count).map(|_| {
            let mut options = Options {
                session_hook: None,
                sweep_every: Duration::from_millis(50),
                notify_every: Duration::from_millis(2),
                ..self.options(&Setup { pending_max: 1_000_000, ..Setup::default() })
            };
            adjust(&mut options);
            Postgres::open(options)
        }));
        opened.await.into_iter().map(|opened| Arc::new(opened.expect("a ledger"))).collect()
    }

    pub fn options(&self, setup: &Setup) -> Options {
        Options {
            allow_unsafe_server: true,
            connections_max: 6,
            pending_max: setup.pending_max as u64,
            pending_hard_max: setup.pending_hard_max as u64,
            idempotency_window_ms: setup.idempotency_window_ms,
            slots_max: setup.slots_max as u64,
            slot_retention_ms: setup.slot_retention_ms,
            batch_bytes_max: setup.batch_bytes_max,
            queue_rules: setup.queue_rules.clone(),
            queue_forget_after_ms: setup.queue_forget_after_ms,
            // The longest that a test lets pass between admission and look-up.
            retention_ms: 400 * 86_400_000,
            poll: Duration::from_millis(10),
            // The cases sweep when they want it.
            sweep_every: Duration::from_secs(600),
            session_hook: Some(told_by(setup.clock.clone())),
            connection_wait: HANG,
            connect_timeout: HANG,
            statement_timeout: HANG,
            lock_timeout: HANG,
            ..Options::new(services::Postgres::shared().url(&self.database))
        }
    }

    pub async fn client(&self) -> anyhow::Result<Client> {
        let url = services::Postgres::shared().url(&self.database);
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }
}

fn told_by(clock: Arc<TestClock>) -> SessionHook {
    SessionHook(Arc::new(move |client| {
        let now = clock.now().millis();
        Box::pin(async move { client.batch_execute(&format!("SET tidegate.test_now = '{now}'")).await })
    }))
}

#[async_trait]
impl Backend for PostgresBackend {
    async fn open(&self, setup: &Setup) -> anyhow::Result<Opened> {
        Ok(Opened::new(Arc::new(Postgres::open(self.options(setup)).await?)))
    }

    async fn close(&self, opened: Opened) -> anyhow::Result<()> {
        drop(opened);
        let client = self.client().await?;
        client.batch_execute(include_str!("void_leases.sql")).await?;
        Ok(())
    }

    async fn export(&self, setup: &Setup) -> anyhow::Result<Box<dyn Export>> {
        // Connections of a ledger that was closed end when the server notices.
        Ok(tidegate_postgres::export(&self.options(setup), true).await?)
    }

    async fn import(&self, setup: &Setup, manifest: Manifest) -> anyhow::Result<Box<dyn Import>> {
        Ok(tidegate_postgres::import(self.options(setup), manifest).await?)
    }
}

impl Drop for PostgresBackend {
    fn drop(&mut self) {
        // Whoever is still connected is cut off: the case is over.
        let drop = format!("DROP DATABASE {} WITH (FORCE)", self.database);
        if let Err(error) = services::Postgres::shared().sql("postgres", &drop) {
            eprintln!("{error:#}");
        }
    }
}

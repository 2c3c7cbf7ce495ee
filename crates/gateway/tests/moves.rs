//! A ledger that moves between both kinds in mid-life, against a model that stays where it is.

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use tempfile::TempDir;
use tidegate_adapters::embedded::{self, Embedded};
use tidegate_domain::transfer::{Export, Import, Manifest};
use tidegate_domain::{Clock, Durability};
use tidegate_postgres::{self as postgres, Postgres, SessionHook};
use tidegate_testkit::conformance::moves;
use tidegate_testkit::services::{self, Postgres as Server};
use tidegate_testkit::{Backend, Harness, Opened, Setup, drive};

/// The longest that a test lets pass between admission and look-up.
const RETENTION_MS: u64 = 400 * 86_400_000;

enum Place {
    Directory(TempDir),
    /// Of its own, copied from one that is migrated.
    Database(String),
}

static TEMPLATE: LazyLock<String> = LazyLock::new(|| {
    let server = Server::shared();
    let name = format!("template_{}", server.new_name());
    server.sql("postgres", &format!("CREATE DATABASE {name}")).expect("a database");
    let options =
        postgres::Options { allow_unsafe_server: true, ..postgres::Options::new(server.url(&name)) };
    let migrating = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async { drop(Postgres::open(options).await.expect("a ledger")) });
    });
    migrating.join().expect("migrated");
    // The ledger's one door to time.
    let clock = "CREATE OR REPLACE FUNCTION tidegate.now_ms() RETURNS bigint LANGUAGE sql VOLATILE \
                 AS $$ SELECT current_setting('tidegate.test_now')::bigint $$";
    server.sql(&name, clock).expect("the test's clock");
    name
});

impl Place {
    fn directory() -> Self {
        Self::Directory(tempfile::tempdir().expect("a temporary directory"))
    }

    fn database() -> Self {
        let (server, name) = (Server::shared(), Server::shared().new_name());
        let copy = format!("CREATE DATABASE {name} TEMPLATE {}", *TEMPLATE);
        server.sql("postgres", &copy).expect("a database");
        Self::Database(name)
    }
}

fn in_directory(dir: &Path, setup: &Setup) -> embedded::Options {
    embedded::Options {
        sync: Durability::OsBuffer,
        pending_max: setup.pending_max as u64,
        pending_hard_max: setup.pending_hard_max as u64,
        idempotency_window_ms: setup.idempotency_window_ms,
        slots_max: setup.slots_max,
        slot_retention_ms: setup.slot_retention_ms,
        batch_bytes_max: setup.batch_bytes_max,
        queue_rules: setup.queue_rules.clone(),
        queue_forget_after_ms: setup.queue_forget_after_ms,
        retention_ms: RETENTION_MS,
        ..embedded::Options::new(dir)
    }
}

fn in_database(name: &str, setup: &Setup) -> postgres::Options {
    let clock = setup.clock.clone();
    let told = SessionHook(Arc::new(move |client| {
        let now = clock.now().millis();
        Box::pin(async move { client.batch_execute(&format!("SET tidegate.test_now = '{now}'")).await })
    }));
    postgres::Options {
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
        retention_ms: RETENTION_MS,
        sweep_every: Duration::from_secs(600),
        session_hook: Some(told),
        // Numbers of several partitions.
        partition_messages: 40,
        ..postgres::Options::new(Server::shared().url(name))
    }
}

#[async_trait]
impl Backend for Place {
    async fn open(&self, setup: &Setup) -> anyhow::Result<Opened> {
        Ok(match self {
            Self::Directory(dir) => {
                let (options, clock) = (in_directory(dir.path(), setup), setup.clock.clone());
                let opening = tokio::task::spawn_blocking(move || Embedded::open(options, clock));
                Opened::new(Arc::new(opening.await??))
            }
            Self::Database(name) => Opened::new(Arc::new(Postgres::open(in_database(name, setup)).await?)),
        })
    }

    async fn close(&self, opened: Opened) -> anyhow::Result<()> {
        tokio::task::spawn_blocking(move || drop(opened)).await?;
        if let Self::Database(name) = self {
            let void = include_str!("../../postgres/tests/postgres/void_leases.sql");
            services::Postgres::shared().sql(name, void)?;
            gone(name).await?;
        }
        Ok(())
    }

    async fn export(&self, setup: &Setup) -> anyhow::Result<Box<dyn Export>> {
        match self {
            Self::Directory(dir) => {
                let clock: Arc<dyn Clock> = setup.clock.clone();
                let options = in_directory(dir.path(), setup);
                Ok(tokio::task::spawn_blocking(move || embedded::export(&options, &clock)).await??)
            }
            Self::Database(name) => Ok(postgres::export(&in_database(name, setup), false).await?),
        }
    }

    async fn import(&self, setup: &Setup, manifest: Manifest) -> anyhow::Result<Box<dyn Import>> {
        match self {
            Self::Directory(dir) => {
                let (options, clock) = (in_directory(dir.path(), setup), setup.clock.clone());
                Ok(tokio::task::spawn_blocking(move || embedded::import(options, clock, manifest)).await??)
            }
            Self::Database(name) => Ok(postgres::import(in_database(name, setup), manifest).await?),
        }
    }
}

/// Connections of a ledger that was closed end when the server notices.
async fn gone(database: &str) -> anyhow::Result<()> {
    let connected = "SELECT count(*) FROM pg_stat_activity \
                     WHERE datname = current_database() AND application_name = 'tidegate'";
    for _ in 0..500 {
        if Server::shared().sql(database, connected)?.trim() == "0" {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    anyhow::bail!("connections of a closed ledger are still there")
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Self::Database(name) = self {
            let drop = format!("DROP DATABASE {name} WITH (FORCE)");
            if let Err(error) = Server::shared().sql("postgres", &drop) {
                eprintln!("{error:#}");
            }
        }
    }
}

/// Every case, there and back.
macro_rules! cases {
    ($($case:ident),+ $(,)?) => {
        mod to_a_database {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::run(super::Place::directory(), super::Place::database(), async |h, target| {
                    tidegate_testkit::conformance::moves::$case(h, target).await;
                })
                .await;
            })+
        }
        mod to_a_directory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::run(super::Place::database(), super::Place::directory(), async |h, target| {
                    tidegate_testkit::conformance::moves::$case(h, target).await;
                })
                .await;
            })+
        }
    };
}

cases!(
    a_requeued_message_keeps_its_new_place,
    a_lease_from_before_settles_nothing_and_tokens_go_on,
    what_is_erased_stays_so_in_another_ledger,
    a_forgotten_queue_stays_so_and_what_ended_there_is_found,
    a_quotas_exemption_comes_along,
);

async fn run(source: Place, target: Place, case: impl AsyncFnOnce(&Harness, Place)) {
    let harness = Harness::open(source, Setup::default()).await.expect("the ledger opens");
    case(&harness, target).await;
}

/// A database's tokens are larger than a new directory's only if they began in another directory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_go_on_there_and_back() {
    run(Place::directory(), Place::database(), async |h, target| {
        moves::a_lease_from_before_settles_nothing_and_tokens_go_on(h, target).await;
        moves::a_lease_from_before_settles_nothing_and_tokens_go_on(h, Place::directory()).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_with_something_in_it_is_refused() {
    run(Place::database(), Place::directory(), async |h, target| {
        moves::a_target_with_something_in_it_is_refused(h, Place::directory(), target).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_with_something_in_it_is_refused() {
    run(Place::directory(), Place::database(), async |h, target| {
        moves::a_target_with_something_in_it_is_refused(h, Place::directory(), target).await;
    })
    .await;
}

#[test]
fn a_ledger_that_moves_there_and_back_agrees_with_the_model() {
    drive::compare_moves_with_model(12, 2, |life| match life {
        1 => Place::database(),
        _ => Place::directory(),
    });
}

#[test]
fn a_ledger_that_moves_back_and_there_agrees_with_the_model() {
    drive::compare_moves_with_model(8, 2, |life| match life {
        1 => Place::directory(),
        _ => Place::database(),
    });
}

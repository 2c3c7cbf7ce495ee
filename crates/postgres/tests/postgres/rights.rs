//! What roles other than the schema's owner may do.

use tidegate_domain::{Ledger as _, Queues as _};
use tidegate_postgres::{Options, Postgres};
use tidegate_testkit::Setup;
use tidegate_testkit::conformance::{queue, sms};
use tidegate_testkit::services;
use tokio_postgres::{Client, NoTls};

use crate::backend::PostgresBackend;

const README: &str = include_str!("../../../../README.md");
const DAY_MS: u64 = 86_400_000;

/// A role for one test, gone with it.
struct Role<'a> {
    backend: &'a PostgresBackend,
    name: String,
}

impl<'a> Role<'a> {
    fn new(backend: &'a PostgresBackend, grants: &str) -> Self {
        let role = Self { backend, name: format!("gateway_{}", backend.database) };
        role.as_owner(&format!("CREATE ROLE {} LOGIN", role.name));
        role.as_owner(&grants.replace("TO gateway;", &format!("TO {};", role.name)));
        role
    }

    fn as_owner(&self, sql: &str) -> String {
        services::Postgres::shared().sql(&self.backend.database, sql).unwrap()
    }

    fn url(&self) -> String {
        let url = services::Postgres::shared().url(&self.backend.database);
        url.replace("postgres@", &format!("{}@", self.name))
    }

    async fn client(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

impl Drop for Role<'_> {
    fn drop(&mut self) {
        let sql = format!("DROP OWNED BY {0}; DROP ROLE {0}", self.name);
        let _ = services::Postgres::shared().sql(&self.backend.database, &sql);
    }
}

/// The statements that the README tells an operator to run, for a role by the name of `gateway`.
fn grants_of_the_readme() -> &'static str {
    let blocks = README.split("```").filter_map(|block| block.trim_start().strip_prefix("sql\n"));
    let mut grants = blocks.filter(|block| block.contains("GRANT "));
    let first = grants.next().expect("a block of grants");
    assert!(grants.next().is_none(), "more than one block of grants");
    first
}

/// Another role has migrated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_owns_nothing_can_run_a_gateway() {
    let backend = PostgresBackend::new();
    let role = Role::new(&backend, grants_of_the_readme());
    let setup = Setup { pending_max: 1_000, ..Setup::default() };
    let options = backend.options(&setup);
    let options = Options { url: role.url(), partition_messages: 10, retention_ms: DAY_MS, ..options };
    let ledger = Postgres::open(options.clone()).await.unwrap();
    role.as_owner("SELECT setval('tidegate.message_seq', 1000000000)");
    for _ in 0..3 {
        ledger.admit((0..10).map(|_| sms("a").0).collect()).await.unwrap();
        ledger.sweep().await.unwrap();
    }
    assert_eq!(ledger.pop(queue("sms"), 100, 0).await.unwrap().len(), 30);
    setup.clock.advance_ms(2 * DAY_MS);
    for _ in 0..9 {
        ledger.sweep().await.unwrap();
    }
    let left = role.as_owner("SELECT count(*) FROM tidegate.message WHERE seq < 1000000020");
    assert_eq!(left.trim(), "0", "old messages go");
    let mut export = tidegate_postgres::export(&options, true).await.unwrap();
    while !export.next().await.unwrap().is_empty() {}
    drop(ledger);
}

/// Some of them run as their owner.
#[tokio::test]
async fn a_role_that_may_only_read_can_execute_nothing() {
    let backend = PostgresBackend::new();
    let role = Role::new(
        &backend,
        "GRANT USAGE ON SCHEMA tidegate TO gateway; \
         GRANT SELECT ON ALL TABLES IN SCHEMA tidegate TO gateway;",
    );
    let client = role.client().await;
    let open = "SELECT p.oid::regprocedure::text FROM pg_proc p \
                WHERE p.pronamespace = 'tidegate'::regnamespace AND has_function_privilege(p.oid, 'EXECUTE')";
    let open: Vec<String> = client.query(open, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(open, [""; 0], "anybody may execute these");
    let definers = "SELECT format('SELECT %s(%s)', p.oid::regproc, \
                        array_to_string(array_fill('NULL'::text, ARRAY[p.pronargs::integer]), ', ')) \
                    FROM pg_proc p WHERE p.pronamespace = 'tidegate'::regnamespace AND p.prosecdef";
    let definers = client.query(definers, &[]).await.unwrap();
    assert!(definers.len() >= 5, "those of partitions and retirement");
    for row in definers {
        let sql: &str = row.get(0);
        let refused = client.batch_execute(sql).await.expect_err(sql);
        assert_eq!(refused.code().map(tokio_postgres::error::SqlState::code), Some("42501"), "{sql}");
    }
}

/// A temporary table comes first for whoever does not say otherwise, and its triggers run as the one who writes.
#[tokio::test]
async fn what_runs_as_the_owner_uses_nothing_of_its_caller() {
    let backend = PostgresBackend::new();
    let role = Role::new(&backend, grants_of_the_readme());
    let client = role.client().await;
    client
        .batch_execute(
            "CREATE TEMP TABLE partition (LIKE tidegate.partition);
             CREATE FUNCTION pg_temp.caught() RETURNS trigger LANGUAGE plpgsql
                AS $$ BEGIN RAISE EXCEPTION 'runs as %', current_user; END $$;
             CREATE TRIGGER caught BEFORE INSERT ON pg_temp.partition
                FOR EACH ROW EXECUTE FUNCTION pg_temp.caught();",
        )
        .await
        .unwrap();
    role.as_owner("SELECT setval('tidegate.message_seq', 1000000000)");
    let made = client.query_one("SELECT tidegate.ensure_partitions(5000000)", &[]).await.unwrap();
    assert!(made.get::<_, i32>(0) > 0, "in the ledger's own table");
    let unsafe_paths = "SELECT p.oid::regprocedure::text FROM pg_proc p \
                        WHERE p.pronamespace = 'tidegate'::regnamespace AND p.prosecdef \
                            AND NOT coalesce(p.proconfig @> ARRAY['search_path=tidegate, pg_temp'], false)";
    assert_eq!(role.as_owner(unsafe_paths).trim(), "");
}

#[tokio::test]
async fn whoever_may_not_use_the_schema_is_told_what_to_do() {
    for backend in [PostgresBackend::empty(), PostgresBackend::new()] {
        let role = Role::new(&backend, "SELECT 1");
        let options = Options { url: role.url(), ..backend.options(&Setup::default()) };
        let refused = anyhow::Error::from(Postgres::open(options).await.unwrap_err());
        let said = format!("{refused:#}");
        assert_eq!(said.matches("permission denied").count(), 1, "{said}");
        assert!(said.contains("`tidegate migrate`") && !said.contains("db error"), "{said}");
    }
}

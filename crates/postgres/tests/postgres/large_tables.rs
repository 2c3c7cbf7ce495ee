//! With many rows, every operation still looks at a few: what it reads is counted by the server itself.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_domain::{
    Admitted, Begun, Claim, ClaimRequest, Extension, Filter, Lane, Ledger as _, Outcome, Page, QueueRule,
    Queues as _, Recipient, Requeue, Requeued, Settlement, Status, Transit as _,
};
use tidegate_postgres::{Options, Postgres};
use tidegate_testkit::conformance::{queue, sms, user};
use tidegate_testkit::services;
use tidegate_testkit::{NARROW, Setup};
use tokio::time::sleep;
use tokio_postgres::Client;

use crate::backend::PostgresBackend;

/// What waits is in chains of ten by half, and a third is not due yet. Of what is settled, every thirtieth is dead.
const FILL: &str = include_str!("fill.sql");
/// Settled, and in all.
const SOME: (u64, u64) = (60_000, 120_000);
const MANY: (u64, u64) = (5_000_000, 6_000_000);
/// Rows that one call may read of one table; each call below concerns a handful of messages.
const READ_MAX: i64 = 600;

/// 20,000 messages of one queue whose time is over, and that nobody has ended yet.
const OVER: &str = "SET search_path TO tidegate; INSERT INTO tidegate.pending (seq, admitted_at, queue, chained, place, lane, is_head, line_lane, \
                    due_at, claimable_at, expires_at) \
                    SELECT -n, 0, 'over', false, -n, 1, true, 1, 0, 0, n FROM generate_series(1, 20000) n; \
                    INSERT INTO tidegate.tally VALUES ('', 99, 20000, 0, 0, 0, 0, 0, 20000, 0), \
                        ('over', 99, 20000, 0, 0, 0, 0, 0, 20000, 0)";

/// 20,000 attempts of one queue, and as many messages of another in transit.
const LEASED: &str = "SET search_path TO tidegate; INSERT INTO tidegate.pending (seq, admitted_at, queue, chained, place, lane, is_head, \
                      line_lane, due_at, claimable_at, token, ends_at, in_transit) \
                      SELECT -n, 0, CASE WHEN n % 2 = 0 THEN 'sms' ELSE 'many' END, false, -n, 1, true, 1, 0, 0, n, \
                      9000000000000, n % 2 = 1 FROM generate_series(1, 40000) n; ANALYZE tidegate.pending";

fn fill(backend: &PostgresBackend, (settled, all): (u64, u64)) {
    // However many there are, they came within two minutes.
    let numbers = [("{settled}", settled), ("{all}", all), ("{step}", all / 120_000)];
    let fill = |sql: String, (name, number): (&str, u64)| sql.replace(name, &number.to_string());
    let sql = numbers.into_iter().fold(FILL.to_owned(), fill);
    services::Postgres::shared().sql(&backend.database, &sql).unwrap();
}

async fn open(backend: &PostgresBackend, setup: &Setup) -> Postgres {
    Postgres::open(Options { connections_max: 1, ..backend.options(setup) }).await.unwrap()
}

/// What the server has read since the last look.
struct Reads<'a> {
    ledger: &'a Postgres,
    client: Client,
    before: BTreeMap<String, i64>,
}

impl<'a> Reads<'a> {
    /// Of a ledger with one connection.
    async fn begin(backend: &PostgresBackend, ledger: &'a Postgres) -> Self {
        let mut reads = Self { ledger, client: backend.client().await.unwrap(), before: BTreeMap::new() };
        reads.before = reads.now().await;
        reads
    }

    async fn now(&self) -> BTreeMap<String, i64> {
        // A session tells what it has read at the end of a statement, a second after it did so last.
        sleep(Duration::from_millis(1_200)).await;
        self.ledger.quota(user("nobody")).await.unwrap();
        let rows = self
            .client
            .query(
                "SELECT relname::text, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) \
                 FROM pg_stat_user_tables WHERE schemaname = 'tidegate'",
                &[],
            )
            .await
            .unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    async fn check(&mut self, what: &str) {
        self.check_up_to(READ_MAX, what).await;
    }

    async fn check_up_to(&mut self, max: i64, what: &str) {
        let after = self.now().await;
        for (table, after) in &after {
            // A sweep may have made it.
            let read = after - self.before.get(table).unwrap_or(&0);
            assert!(read <= max, "{what} read {read} rows of {table}");
        }
        self.before = after;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_operation_reads_more_than_it_needs() {
    // Many take minutes to make.
    let rows = if std::env::var_os("TIDEGATE_TEST_LARGE").is_some() { MANY } else { SOME };
    let backend = PostgresBackend::new();
    let setup = Setup { pending_max: 10_000_000, ..Setup::default() };
    let ledger = open(&backend, &setup).await;
    fill(&backend, rows);
    // What look-ups need of them is made once.
    for _ in 0..4 {
        ledger.sweep().await.unwrap();
    }
    let mut reads = Reads::begin(&backend, &ledger).await;
    let drafts =
        [sms("a").to("r5"), sms("b").lane(Lane::High).to("r6"), sms("c").key("k"), sms("d").key("k")];
    let admitted = ledger.admit(drafts.map(|draft| draft.on("big").0).to_vec()).await.unwrap();
    let Admitted::Admitted { id, .. } = admitted[2] else { panic!("{admitted:?}") };
    reads.check("admit").await;
    let request = ClaimRequest { queue: queue("big"), max: 5, lease_ms: 1_000, wait_ms: 0 };
    let claims = ledger.claim(request).await.unwrap();
    assert_eq!(claims.len(), 5);
    reads.check("claim").await;
    let kinds = [
        Outcome::Delivered,
        Outcome::Dead { reason: "x".into() },
        Outcome::Retry { delay_ms: 9, reason: "x".into() },
        Outcome::Released,
        Outcome::Held { for_ms: 9 },
    ];
    let settlements = claims.iter().zip(kinds).map(|(claim, outcome)| Settlement {
        id: claim.id,
        token: claim.token,
        outcome,
        latency_ms: 1,
    });
    ledger.settle(settlements.collect()).await.unwrap();
    reads.check("settle").await;
    let request = ClaimRequest { queue: queue("big"), max: 5, lease_ms: 1_000, wait_ms: 0 };
    let records = ledger.dispatch(request, 100).await.unwrap();
    reads.check("dispatch").await;
    let beginning = |record: &Claim| Extension { id: record.id, token: record.token, lease_ms: 1_000 };
    let begun = ledger.begin(records.iter().map(beginning).collect()).await.unwrap();
    assert!(begun.len() == 5 && !begun.contains(&Begun::LostLease), "{begun:?}");
    reads.check("begin").await;
    assert_eq!(ledger.pop(queue("big"), 5, 0).await.unwrap().len(), 5);
    reads.check("pop").await;
    ledger.message(id).await.unwrap().unwrap();
    ledger.cancel(vec![id]).await.unwrap();
    ledger.ack(vec![id]).await.unwrap();
    reads.check("message, cancel and ack").await;
    let requeue = |id| Requeue { id, body: None, delay_ms: 0 };
    ledger.requeue(vec![requeue(claims[1].id)]).await.unwrap();
    reads.check("requeue").await;
    for status in [Status::Dead, Status::Pending] {
        let filter = Filter { status: Some(status), ..Filter::default() };
        let list = ledger
            .list(filter, Page { max: 3, body_bytes_max: Some(usize::MAX), after: None })
            .await
            .unwrap();
        assert_eq!(list.messages.len(), 3);
    }
    // Each looks at a slice of so many.
    reads.check_up_to(2 * 5_000, "lists of a few").await;
    let recipient = Some(Recipient::new("r77").unwrap());
    let page = Page { max: 100, body_bytes_max: Some(usize::MAX), after: None };
    let list = ledger.list(Filter { recipient, ..Filter::default() }, page).await.unwrap();
    assert_eq!((list.messages.len(), list.next), (10, None));
    // The messages of the block that is being filled are read one by one.
    reads.check_up_to(16_384 + READ_MAX, "a look-up by recipient").await;
    ledger.counts().await.unwrap();
    ledger.queue_counts().await.unwrap();
    reads.check("counts").await;
    ledger.sweep().await.unwrap();
    reads.check("sweep").await;
}

/// In real time: the server's clock is of another kind than a test's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_reads_nothing_that_is_young() {
    let backend = PostgresBackend::empty();
    let adjust = |options: &mut Options| {
        options.sweep_every = Duration::from_secs(600);
        options.connections_max = 1;
    };
    let ledger = backend.gateways(1, adjust).await.remove(0);
    let young = "INSERT INTO tidegate.key (key, fingerprint, seq, admitted_at) \
                 SELECT decode(md5(n::text), 'hex'), '\\x00', n, tidegate.now_ms() FROM generate_series(1, 20000) n; \
                 INSERT INTO tidegate.outcome (seq, status, at, due_at) \
                 SELECT -n, 1, tidegate.now_ms(), 0 FROM generate_series(1, 20000) n";
    services::Postgres::shared().sql(&backend.database, young).unwrap();
    let mut reads = Reads::begin(&backend, &ledger).await;
    ledger.sweep().await.unwrap();
    reads.check("sweep").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_expired_in_one_queue_is_not_read_for_another() {
    let backend = PostgresBackend::new();
    let setup = Setup { pending_max: 1_000_000, ..Setup::default() };
    let ledger = open(&backend, &setup).await;
    ledger.admit(vec![sms("a").0, sms("b").0]).await.unwrap();
    services::Postgres::shared().sql(&backend.database, OVER).unwrap();
    let mut reads = Reads::begin(&backend, &ledger).await;
    ledger.admit(vec![sms("c").0, sms("d").on(NARROW).0]).await.unwrap();
    reads.check("admit").await;
    let request = ClaimRequest { queue: queue("sms"), max: 1, lease_ms: 1_000, wait_ms: 0 };
    assert_eq!(ledger.claim(request).await.unwrap().len(), 1);
    assert_eq!(ledger.pop(queue("sms"), 1, 0).await.unwrap().len(), 1);
    reads.check("claim and pop").await;
}

/// However many are leased, in this queue or in transit in others: of a queue's own, no more are read than may be there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_transit_is_counted_up_to_its_bound() {
    let backend = PostgresBackend::new();
    let setup = Setup::default();
    let ledger = open(&backend, &setup).await;
    ledger.admit((0..20).map(|n| sms(&n.to_string()).0).collect()).await.unwrap();
    services::Postgres::shared().sql(&backend.database, LEASED).unwrap();
    let mut reads = Reads::begin(&backend, &ledger).await;
    let request = |name| ClaimRequest { queue: queue(name), max: 10, lease_ms: 1_000, wait_ms: 0 };
    assert_eq!(ledger.dispatch(request("sms"), 100).await.unwrap().len(), 10);
    reads.check("a dispatch with room").await;
    assert_eq!(ledger.dispatch(request("many"), 100).await.unwrap(), []);
    reads.check("a dispatch without").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_dead_letters_return_with_a_few_rows_read_for_each() {
    let backend = PostgresBackend::new();
    let rule = QueueRule { pending_max: 1_000_000, pending_hard_max: 1_000_000, ..QueueRule::default() };
    let queue_rules = vec![(queue("big"), rule)];
    let setup = Setup { pending_max: 1_000_000, queue_rules, ..Setup::default() };
    let ledger = open(&backend, &setup).await;
    fill(&backend, SOME);
    let filter = Filter { status: Some(Status::Dead), ..Filter::default() };
    let dead = ledger
        .list(filter, Page { max: 300, body_bytes_max: Some(usize::MAX), after: None })
        .await
        .unwrap()
        .messages;
    let batch: Vec<_> =
        dead.iter().map(|record| Requeue { id: record.id, body: None, delay_ms: 0 }).collect();
    let mut reads = Reads::begin(&backend, &ledger).await;
    assert_eq!(ledger.requeue(batch).await.unwrap(), [Requeued::Requeued; 300]);
    reads.check_up_to(300 * 20, "requeue").await;
}

/// Whatever the order in which recipients' messages lie: what a pop reads grows with what it takes, not with its square.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_pop_reads_in_proportion() {
    const TAKEN: usize = 400;
    for interleaved in [true, false] {
        let backend = PostgresBackend::new();
        let setup = Setup { pending_max: 10_000, ..Setup::default() };
        let ledger = open(&backend, &setup).await;
        let draft = |number: usize| {
            let recipient = if interleaved { number % (TAKEN / 4) } else { number / 4 };
            sms(&number.to_string()).to(&format!("r{recipient}")).on("big").0
        };
        ledger.admit((0..TAKEN * 2).map(draft).collect()).await.unwrap();
        let reads = Reads::begin(&backend, &ledger).await;
        let popped = ledger.pop(queue("big"), TAKEN, 0).await.unwrap();
        let bodies: Vec<_> = popped.iter().map(|claim| claim.body.clone().unwrap()).collect();
        let expected: Vec<_> = (0..TAKEN).map(|number| number.to_string()).collect();
        assert_eq!(bodies, expected);
        let rows = reads.now().await["pending"] - reads.before["pending"];
        assert!(rows <= 40 * i64::try_from(TAKEN).unwrap(), "{rows} rows, interleaved: {interleaved}");
    }
}

//! Look-ups by recipient and user: what tells them is made in the background, and lacks no message.

use tidegate_domain::{Admitted, Filter, Ledger as _, MessageId, Page, Queues as _, Recipient, Status};
use tidegate_postgres::{Options, Postgres};
use tidegate_testkit::conformance::{sms, user};
use tidegate_testkit::{Setup, services};

use crate::backend::PostgresBackend;
use crate::session::Session;

const HOUR_MS: u64 = 3_600_000;

/// Settled messages of many, of which every thousandth is ann's, charged to another; every ten thousandth is dead. The last of
/// each block is charged to a user of its own. They came when the test's clock began.
const FILL: &str = "SET search_path TO tidegate; INSERT INTO queue (name) VALUES ('sms'); \
    INSERT INTO message (seq, admitted_at, queue, recipient, chained, lane, user_id, ack_required, body, checksum) \
    SELECT n, {at}, 'sms', CASE WHEN n % 1000 = 7 THEN 'ann' ELSE 'r' || n END, false, 1, \
        CASE WHEN n % 1000 = 7 THEN 'payer' WHEN n % 16384 = 16383 THEN 'last' END, false, 'x', 2363233923 FROM generate_series(1, {all}) n; \
    INSERT INTO outcome (seq, status, at, due_at, number, latency_ms) \
    SELECT n, CASE WHEN n % 10000 = 7 THEN 2 ELSE 1 END, {at}, {at}, 1, 1 FROM generate_series(1, {all}) n; \
    INSERT INTO tally SELECT name, 99, {all}, {all} - {all} / 10000, {all} / 10000, 0, 0, 0, 0, 0 \
    FROM unnest('{sms, \"\"}'::text[]) AS name; SELECT setval('message_seq', {all})";

fn fill(backend: &PostgresBackend, all: u64) {
    let at = tidegate_testkit::TestClock::START.millis();
    let sql = FILL.replace("{at}", &at.to_string()).replace("{all}", &all.to_string());
    services::Postgres::shared().sql(&backend.database, &sql).unwrap();
}

fn to(recipient: &str) -> Filter {
    Filter { recipient: Some(Recipient::new(recipient).unwrap()), ..Filter::default() }
}

/// The numbers of one page, and whether there are more.
async fn page(ledger: &Postgres, filter: &Filter, after: Option<MessageId>) -> (Vec<u64>, Option<MessageId>) {
    let page = Page { max: 1_000, body_bytes_max: Some(usize::MAX), after };
    let listing = ledger.list(filter.clone(), page).await.unwrap();
    (listing.messages.iter().map(|record| record.id.seq()).collect(), listing.next)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_page_holds_all_before_and_after_a_sweep() {
    let backend = PostgresBackend::new();
    let setup = Setup::default();
    let ledger = Postgres::open(backend.options(&setup)).await.unwrap();
    fill(&backend, 60_000);
    let of_ann: Vec<u64> = (7..60_000).step_by(1_000).collect();
    let paid = Filter { user: Some(user("payer")), ..Filter::default() };
    let last = Filter { user: Some(user("last")), ..Filter::default() };
    let dead = Filter { status: Some(Status::Dead), ..to("ann") };
    for swept in [false, true] {
        for filter in [&to("ann"), &paid] {
            assert_eq!(page(&ledger, filter, None).await, (of_ann.clone(), None), "swept: {swept}");
        }
        assert_eq!(page(&ledger, &dead, None).await, ((7..60_000).step_by(10_000).collect(), None));
        // Both sides of the end of a block, and the last of all.
        for seq in [16_383, 16_384, 59_999] {
            assert_eq!(page(&ledger, &to(&format!("r{seq}")), None).await, (vec![seq], None));
        }
        assert_eq!(page(&ledger, &last, None).await, (vec![16_383, 32_767, 49_151], None));
        assert_eq!(page(&ledger, &to("zoe"), None).await, (vec![], None));
        ledger.sweep().await.unwrap();
    }
    let session = Session::open(&backend).await;
    assert_eq!(session.number("SELECT past_end FROM party_mark").await, 60_000 >> 14);
    // A page that begins in the middle of a block.
    let first = Page { max: 20, body_bytes_max: Some(usize::MAX), after: None };
    let first = ledger.list(to("ann"), first).await.unwrap();
    let rest = page(&ledger, &to("ann"), first.next).await;
    assert_eq!((first.messages.len(), rest), (20, (of_ann[20..].to_vec(), None)));
    // A server that hashes otherwise, as it were.
    session.run("UPDATE party_mark SET probe = probe + 1; UPDATE party_run SET hashes = '{}'").await;
    assert_eq!(page(&ledger, &to("ann"), None).await, (of_ann.clone(), None));
    ledger.sweep().await.unwrap();
    assert_eq!(session.number("SELECT past_end FROM party_mark").await, 60_000 >> 14);
    assert_eq!(page(&ledger, &to("ann"), None).await, (of_ann, None));
}

/// Numbers are drawn before their messages are committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_waits_for_those_that_have_drawn_its_numbers() {
    let backend = PostgresBackend::new();
    let setup = Setup::default();
    let ledger = Postgres::open(backend.options(&setup)).await.unwrap();
    let (slow, other) = (Session::open(&backend).await, Session::open(&backend).await);
    slow.run("INSERT INTO queue (name) VALUES ('sms')").await;
    slow.run(
        "BEGIN; INSERT INTO message (seq, admitted_at, queue, recipient, chained, lane, ack_required, body, checksum) \
         VALUES (nextval('message_seq'), 5, 'sms', 'ann', false, 1, false, 'x', 2363233923)",
    )
    .await;
    other.run("SELECT setval('message_seq', 20000)").await;
    ledger.sweep().await.unwrap();
    assert_eq!(other.number("SELECT past_end FROM party_mark").await, 0);
    slow.run("COMMIT").await;
    ledger.sweep().await.unwrap();
    assert_eq!(other.number("SELECT past_end FROM party_mark").await, 1);
    assert_eq!(page(&ledger, &to("ann"), None).await, (vec![1], None));
    let admitted = ledger.admit(vec![sms("later").to("ann").0]).await.unwrap().remove(0);
    let Admitted::Admitted { id, .. } = admitted else { panic!("{admitted:?}") };
    assert_eq!(page(&ledger, &to("ann"), None).await, (vec![1, id.seq()], None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_tells_recipients_goes_with_their_messages() {
    let backend = PostgresBackend::new();
    let setup = Setup::default();
    // The template's first partition is a large one.
    services::Postgres::shared()
        .sql(
            &backend.database,
            "SET search_path TO tidegate; DO $$ DECLARE t text; BEGIN \
             FOR t IN SELECT n || '_' || first FROM partition, unnest('{message, outcome, attempt}'::text[]) n LOOP \
             EXECUTE 'DROP TABLE ' || t; END LOOP; DELETE FROM partition; END $$; SELECT ensure_partitions(40000)",
        )
        .unwrap();
    let options = Options { partition_messages: 40_000, retention_ms: HOUR_MS, ..backend.options(&setup) };
    let ledger = Postgres::open(options).await.unwrap();
    ledger.sweep().await.unwrap();
    fill(&backend, 60_000);
    ledger.sweep().await.unwrap();
    let session = Session::open(&backend).await;
    let entries = "SELECT sum(cardinality(hashes)) FROM party_run WHERE block = 1";
    assert!(session.number(entries).await > 16_000);
    setup.clock.advance_ms(2 * HOUR_MS);
    for _ in 0..4 {
        ledger.sweep().await.unwrap();
    }
    // Of the first 40,000 only dead letters are left, each with its recipient and its user.
    assert_eq!(session.number("SELECT count(*) FROM message WHERE seq <= 40000").await, 4);
    assert_eq!(session.number(entries).await, 2 * 2);
    let dead = Filter { status: Some(Status::Dead), ..to("ann") };
    assert_eq!(page(&ledger, &dead, None).await, ((7..60_000).step_by(10_000).collect(), None));
}

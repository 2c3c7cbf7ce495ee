//! Texts of deleted messages leave the rows at once, and what is left of the rows is vacuumed soon.

use tidegate_domain::{Admitted, Body, Cancelled, Ledger as _, Queues as _, Status};
use tidegate_testkit::conformance::{queue, sms};
use tidegate_testkit::{HANG, services};

use crate::backend::PostgresBackend;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_deleted_texts_leave_behind_is_vacuumed() {
    let backend = PostgresBackend::empty();
    let ledger = backend.gateways(1, |_| {}).await.remove(0);
    let batch = ["a", "b"].map(|text| sms(text).0).to_vec();
    let Admitted::Admitted { id, .. } = ledger.admit(batch).await.unwrap()[0] else { panic!("not admitted") };
    assert_eq!(ledger.cancel(vec![id]).await.unwrap(), [Cancelled::Cancelled]);
    let client = backend.client().await.unwrap();
    // By the checksum, a short text could be guessed.
    let left = "SELECT octet_length(body), checksum FROM tidegate.message WHERE seq = $1";
    let left = client.query_one(left, &[&i64::try_from(id.seq()).unwrap()]).await.unwrap();
    assert_eq!((left.get::<_, i32>(0), left.get::<_, i64>(1)), (0, 0));
    let vacuumed = "SELECT coalesce(sum(vacuum_count), 0)::bigint FROM pg_stat_all_tables \
                    WHERE schemaname = 'tidegate' AND relname LIKE 'message\\_%'";
    let soon = async {
        while client.query_one(vacuumed, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(HANG, soon).await.expect("a vacuum of the deleted message's partition");
    assert_eq!(ledger.message(id).await.unwrap().unwrap().body, Body::Erased);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_headers_do_not_keep_a_message_from_being_deleted() {
    let backend = PostgresBackend::empty();
    let ledger = backend.gateways(1, |_| {}).await.remove(0);
    let mut quoted = sms("b").header("note", "\\ \"idempotency-key\",\"x\"");
    quoted.0.headers.set_key("k\"]\\".to_owned());
    let admitted = ledger.admit(vec![sms("a").header("note", "x").0, quoted.0.clone()]).await.unwrap();
    let ids = admitted.iter().map(|answer| match answer {
        Admitted::Admitted { id, .. } => *id,
        other => panic!("{other:?}"),
    });
    let ids: Vec<_> = ids.collect();
    let sql = format!("UPDATE tidegate.message SET headers = 'lies' WHERE seq = {}", ids[0].seq());
    services::Postgres::shared().sql(&backend.database, &sql).unwrap();
    assert_eq!(ledger.purge(queue("sms")).await.unwrap(), 2);
    for (id, headers) in ids.into_iter().zip([tidegate_domain::Headers::default(), quoted.0.headers.erased()])
    {
        let record = ledger.message(id).await.unwrap().unwrap();
        assert_eq!((record.status, record.body, record.headers), (Status::Deleted, Body::Erased, headers));
    }
}

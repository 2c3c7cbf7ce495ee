use tidegate_testkit::drive;

use crate::backend::PostgresBackend;

#[test]
fn the_ledger_on_postgres_agrees_with_the_model() {
    drive::compare_with_model(30, PostgresBackend::new);
}

#[test]
fn the_queues_on_postgres_agree_with_the_model() {
    drive::compare_queues_with_model(30, PostgresBackend::new);
}

#[test]
fn spent_attempts_on_postgres_agree_with_the_model() {
    drive::compare_spent_attempts_with_model(30, PostgresBackend::new);
}

#[test]
fn the_slots_on_postgres_agree_with_the_model() {
    drive::compare_slots_with_model(30, PostgresBackend::new);
}

#[test]
fn a_ledger_moved_on_postgres_agrees_with_the_model() {
    drive::compare_moves_with_model(15, 2, |_| PostgresBackend::new());
}

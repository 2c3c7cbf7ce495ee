use crate::backend::PostgresBackend;

tidegate_testkit::conformance_cases!(PostgresBackend::new());

tidegate_testkit::slot_cases!(PostgresBackend::new());

tidegate_testkit::queue_cases!(PostgresBackend::new());

tidegate_testkit::transit_cases!(PostgresBackend::new());

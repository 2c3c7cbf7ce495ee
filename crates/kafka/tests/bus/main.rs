//! The Kafka bus passes the cases that every bus passes, on a real Kafka; and on the client's imitation of one, which
//! fails when told to, it gets over that.

#[path = "../support/backend.rs"]
mod backend;
mod mock;
mod mock_faults;

mod on_kafka {
    use std::sync::LazyLock;

    use tidegate_testkit::services::{Kafka, NoKafka};

    use super::backend::Backend;

    static KAFKA: LazyLock<Option<Kafka>> = LazyLock::new(|| match Kafka::start() {
        Err(error) if error.is::<NoKafka>() => {
            println!("left out: a real Kafka; the cases run on a mock cluster: {error:#}");
            None
        }
        started => Some(started.expect("a private Kafka")),
    });

    fn backend() -> Backend {
        match &*KAFKA {
            Some(kafka) => Backend::new(kafka.bootstrap()),
            None => {
                // A cluster for each: it has little room. It lives as long as the process.
                let (mock, backend) = super::mock::Mock::with_backend();
                std::mem::forget(mock);
                backend
            }
        }
    }

    tidegate_testkit::bus_cases!(backend());

    #[test]
    fn random_traffic_loses_and_invents_nothing() {
        tidegate_testkit::bus::compare_bus_with_books(4, backend);
    }
}

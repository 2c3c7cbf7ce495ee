//! The bus on a real RabbitMQ.

mod backend;
mod consumers;
mod faults;
mod logs;
mod records;
mod tls;
mod topology;

mod conformance {
    use crate::backend::RabbitBackend;

    tidegate_testkit::bus_cases!(RabbitBackend::shared());

    #[test]
    fn random_traffic_loses_and_invents_nothing() {
        tidegate_testkit::bus::compare_bus_with_books(4, RabbitBackend::shared);
    }
}

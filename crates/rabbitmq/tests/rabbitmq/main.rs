//! The bus on a real RabbitMQ.

mod backend;

mod conformance {
    use crate::backend::RabbitBackend;

    tidegate_testkit::bus_cases!(RabbitBackend::shared());
}

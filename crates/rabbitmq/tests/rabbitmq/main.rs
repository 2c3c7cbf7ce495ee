//! The bus on a real RabbitMQ.

mod backend;
mod faults;
mod logs;
mod records;
mod tls;
mod topology;

mod conformance {
    use crate::backend::RabbitBackend;

    tidegate_testkit::bus_cases!(RabbitBackend::shared());
}

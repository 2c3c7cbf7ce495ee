//! The bus in this process passes what every bus passes.

use tidegate_testkit::bus::{InProcessBackend, compare_bus_with_books};

tidegate_testkit::bus_cases!(InProcessBackend::default());

#[test]
fn random_traffic_loses_and_invents_nothing() {
    compare_bus_with_books(60, InProcessBackend::default);
}

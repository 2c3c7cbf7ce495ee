//! The bus in this process passes the cases that every bus passes.

tidegate_testkit::bus_cases!(tidegate_testkit::bus::InProcessBackend::default());

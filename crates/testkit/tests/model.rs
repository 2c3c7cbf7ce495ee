//! The cases hold for the oracle itself, so that a red case elsewhere speaks of the backend.

tidegate_testkit::conformance_cases!(tidegate_testkit::ModelBackend::default());

tidegate_testkit::slot_cases!(tidegate_testkit::ModelBackend::default());

tidegate_testkit::queue_cases!(tidegate_testkit::ModelBackend::default());

tidegate_testkit::transit_cases!(tidegate_testkit::ModelBackend::default());

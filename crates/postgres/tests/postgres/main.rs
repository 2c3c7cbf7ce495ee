//! The ledger on PostgreSQL against the contracts of its ports and against the model, on a real server.

mod backend;
mod conformance;
mod cuts;
mod gateways;
mod model;
mod opening;
mod order;

//! The ledger on PostgreSQL against the contracts of its ports and against the model, on a real server.

#![allow(clippy::unwrap_used)] // clippy sees no test in functions that tests share

mod backend;
mod conformance;
mod cuts;
mod damage;
mod defects;
mod erasure;
mod forgetting;
mod gateways;
mod large_tables;
mod model;
mod opening;
mod order;
mod parties;
mod races;
mod retention;
mod returns;
mod rights;
mod sabotage;
mod session;
mod stalls;
mod sweeping;
mod transit;

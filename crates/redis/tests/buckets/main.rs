//! The buckets on a real Redis: the cases of the port, the model, several gateways, and a Redis that fails.

#![allow(clippy::unwrap_used)] // clippy sees no test in functions that tests share

mod absence;
mod clock;
mod clocked;
mod cluster;
mod debts;
mod model;
mod sharing;
mod steps;
mod versions;

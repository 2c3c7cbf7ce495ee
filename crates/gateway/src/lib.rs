//! The gateway: settings, HTTP handlers, the sender, and how they are put together.
//!
//! [`server::run`] takes its listener, ledger, channel, clock and shutdown from outside, so that tests and
//! benches run the very same gateway on whatever they choose. [`wiring`] alone, with what lies below
//! it, names concrete adapters.

mod accelerator;
mod announcement;
mod archive;
pub mod cli;
pub mod config;
pub mod devices;
#[cfg(test)]
mod faulty;
mod http;
pub mod limiters;
pub mod live_policies;
mod open_files;
pub mod pickup;
mod randomness;
pub mod relay;
pub mod sender;
pub mod server;
mod signals;
mod stats;
pub mod stop;
pub mod telemetry;
mod waits;
pub mod wiring;

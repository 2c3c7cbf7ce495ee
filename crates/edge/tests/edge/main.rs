//! The edge over real sockets, spoken to in raw bytes.

// clippy.toml allows it in test functions only, and most of this is their common ground.
#![allow(clippy::unwrap_used)]

mod auth;
mod bodies;
mod client;
mod connections;
mod cross_site;
mod deadlines;
mod heads;
mod json;
mod logs;
mod server;
mod shape;

//! The webhook channel against real listeners that answer, fail, stall and lie.

#![allow(clippy::unwrap_used)] // clippy sees no test in functions that tests share

mod answers;
mod connections;
mod headers;
mod places;
mod sink;
mod tls;

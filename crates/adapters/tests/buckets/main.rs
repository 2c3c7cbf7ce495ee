//! The buckets in memory, against the model, against `governor`, under threads and under pressure.

#![allow(clippy::unwrap_used)] // clippy sees no test in functions that tests share

mod governor;
mod model;
mod pressure;
mod steps;
mod threads;

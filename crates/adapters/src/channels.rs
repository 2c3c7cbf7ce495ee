//! How messages leave.

pub mod log;
pub mod webhook;

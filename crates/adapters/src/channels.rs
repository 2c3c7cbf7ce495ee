//! How messages leave.

pub mod log;

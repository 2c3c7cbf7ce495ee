//! How messages leave.

pub mod inbox;
pub mod log;
pub mod webhook;

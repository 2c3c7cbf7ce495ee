//! The webhook channel against real listeners that answer, fail, stall and lie.

mod answers;
mod connections;
mod headers;
mod places;
mod sink;
mod tls;

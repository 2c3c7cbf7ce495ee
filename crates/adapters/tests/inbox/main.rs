//! The inbox: handing over, keeping until the ack, absence, tokens.

#![allow(clippy::unwrap_used)] // clippy sees no test in functions that tests share

mod absence;
mod bench;
mod handover;
mod keeping;
mod tokens;

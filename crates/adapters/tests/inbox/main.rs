//! The inbox: offers, handing over, keeping until the ack, tokens.

#![allow(clippy::unwrap_used)] // clippy sees no test in functions that tests share

mod bench;
mod handover;
mod keeping;
mod newcomers;
mod offers;
mod tokens;

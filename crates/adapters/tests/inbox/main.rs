//! The inbox: handing over, keeping until the ack, absence, tokens.

mod absence;
mod bench;
mod handover;
mod keeping;
mod tokens;

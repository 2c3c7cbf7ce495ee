//! The embedded ledger on files that were damaged, lost or exchanged while nothing ran.
//!
//! SQLite takes a WAL that is missing, cut or damaged for an empty one, and a start would go on from the last checkpoint
//! as if nothing had been acknowledged since. So every case here ends in one of two ways: the ledger is refused, and the
//! loss can be accepted; or everything that was ever answered is there.

#![allow(clippy::unwrap_used)] // clippy sees no test in functions that tests share

mod erasure;
mod image;
mod lists;
mod losses;
mod mend;
mod pages;
mod pairs;
mod rows;
mod subject;
mod swaps;
mod wal;

//! A ledger's whole state in one file: a line of JSON for each entry, between one that says what is to come and one
//! that says what has been.
//!
//! Every line ends with `"sum"`, a CRC-32 over all that precedes it in the file, sums aside. So damage is found at its
//! line, and so are lines that are missing, doubled or swapped.

mod line;
mod read;
mod text;
mod write;

pub use read::{ArchiveReader, Damage};
pub use write::ArchiveWriter;

/// What this program writes, and the only one it reads.
const VERSION: u32 = 1;
/// A line of a message of any sensible size, and a bound on memory.
const LINE_BYTES_MAX: usize = 256 << 20;

#[cfg(test)]
mod tests;

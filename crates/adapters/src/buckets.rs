//! Where the buckets of policies are kept.

pub mod memory;

//! Policies' buckets on Redis.

//! The ledger on PostgreSQL.

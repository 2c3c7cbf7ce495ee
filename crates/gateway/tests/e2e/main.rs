//! The real binary on a real port with a real directory, from the outside.

#![allow(clippy::unwrap_used)] // clippy sees no test in functions that tests share

mod acks;
mod audit;
mod authority;
mod bus;
mod check_config;
mod client;
mod clocks;
mod connections;
mod dead_letters;
mod deferral;
mod delivery;
mod disk;
mod edges;
mod erasure;
mod first_flow;
mod forgotten_queues;
mod full_disk;
mod gateway;
mod health;
mod inbox;
mod inbox_waiting;
mod inputs;
mod keys;
mod kills;
mod ledger;
mod lifecycle;
mod memory;
mod messages;
mod passwords;
mod policies;
mod policies_admin;
mod postgres;
mod principals;
mod queue;
mod queue_reserve;
mod redis;
mod roles;
mod sink;
mod slot_config;
mod slots;
mod stopping;
mod traces;
mod transfer;
mod warnings;

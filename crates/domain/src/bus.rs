use std::fmt::Debug;

use async_trait::async_trait;

use crate::{Claim, QueueName};

/// How claimed messages reach senders in other processes.
///
/// A bus is a fast path over the ledger and never the truth. What it loses, repeats, delays or reorders costs time: the
/// lease in transit ends and the message is published again, and whoever receives a record asks the ledger before it
/// begins ([`Transit::begin`](crate::Transit::begin)).
#[async_trait]
pub trait Bus: Debug + Send + Sync + 'static {
    fn name(&self) -> &'static str;

    /// Publishes claimed messages with their texts, each for its queue and lane. One result per item, in order: `Ok` when
    /// the bus has confirmed that it keeps the record. Answers within a deadline of its own; after an `Err` the record
    /// may or may not be there.
    async fn publish(&self, batch: Vec<Claim>) -> Vec<Result<(), BusError>>;

    /// Joins those who receive a queue's records. Each record goes to one of them, and to another one when that one leaves
    /// before it said [`done`](Consumer::done).
    async fn consumer(&self, queue: QueueName) -> Result<Box<dyn Consumer>, BusError>;

    /// How the bus is doing, answered from memory. Found out by itself, also while nothing is published.
    fn health(&self) -> BusHealth;
}

/// One who receives a queue's records.
#[async_trait]
pub trait Consumer: Debug + Send + 'static {
    /// Up to `max` records, waiting up to `wait_ms` for the first: of those that are there the higher lanes first, but one
    /// of a lower lane for every ten of higher ones. What can't be read is logged with its place, counted, and skipped.
    /// `Err` when the bus is away; the consumer finds back by itself, and the next call may be made at once or later.
    ///
    /// May be dropped half-way: nothing is lost by that.
    async fn receive(&mut self, max: usize, wait_ms: u64) -> Result<Vec<Claim>, BusError>;

    /// Everything that this consumer has received is dealt with, and need not come again. It may come again nevertheless.
    async fn done(&mut self) -> Result<(), BusError>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BusHealth {
    Ready,
    /// It can't be reached, or does not take records.
    Away(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    /// The bus can't be reached, or does not answer in time. Try again later.
    #[error("the bus is away: {0}")]
    Away(String),
    /// The bus answers, and refuses: no rights, no such topic, no room, too large.
    #[error("the bus refuses: {0}")]
    Refused(String),
}

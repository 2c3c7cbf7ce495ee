//! Moving a ledger's whole state into another one, of whatever kind.

mod entry;
mod generations;
mod inventory;

use std::fmt::Debug;

use async_trait::async_trait;

pub use entry::{Ended, Entry, Fate, KeyEntry, MessageEntry, QueueEntry, QuotaEntry, SlotEntry};
pub use generations::Generations;
pub use inventory::{Inventory, Kind};

use crate::LedgerError;

/// A ledger's state as of one moment, handed out entry by entry. A move is a restart: leases are void, and what was
/// leased is pending.
#[async_trait]
pub trait Export: Debug + Send {
    fn manifest(&self) -> &Manifest;

    /// The next entries, in the order of [`Kind::ALL`] and within messages by number; a bounded batch, and none when
    /// that was all. What is damaged is an error, never left out.
    async fn next(&mut self) -> Result<Vec<Entry>, TransferError>;
}

/// An empty ledger that takes over another one's state. Nothing of it can be seen or served before
/// [`commit`](Import::commit); dropped before, it leaves everything as it was.
#[async_trait]
pub trait Import: Debug + Send {
    /// Takes entries in the order in which they were exported.
    async fn put(&mut self, entries: Vec<Entry>) -> Result<(), TransferError>;

    /// Everything has been put: makes it whole, and says what is there now, counted anew.
    async fn seal(&mut self) -> Result<Stock, TransferError>;

    /// `Ok` promises the durability of the ledger.
    async fn commit(self: Box<Self>) -> Result<(), TransferError>;
}

/// What an export begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Ids keep their meaning only with it.
    pub salt: u32,
    /// No message, and no place in a chain, has a larger number.
    pub seq_last: u64,
    /// No lease ever had a larger token.
    pub token_last: u64,
    pub stock: Stock,
}

/// How much there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stock {
    pub inventory: Inventory,
    pub books: Books,
}

/// Totals since the ledger was made. What is pending follows from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Books {
    pub admitted: u64,
    pub delivered: u64,
    pub dead: u64,
    pub expired: u64,
    pub deleted: u64,
}

/// Why a move failed. In every case the target is as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// It can't be done as things stand, and what to do about it.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl Books {
    pub fn pending(&self) -> Option<u64> {
        let ended = [self.delivered, self.dead, self.expired, self.deleted];
        ended.into_iter().try_fold(self.admitted, u64::checked_sub)
    }
}

impl Stock {
    /// Admitted = delivered + dead + expired + deleted + pending, and what is pending or dead is there.
    pub fn is_balanced(&self) -> bool {
        let found = |kind| self.inventory.of(kind);
        self.books.pending() == Some(found(Kind::Pending)) && self.books.dead == found(Kind::Dead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_message_unbalances_the_books() {
        let books = Books { admitted: 10, delivered: 3, dead: 2, expired: 1, deleted: 1 };
        let mut inventory = Inventory::default();
        inventory.add(Kind::Pending, 3);
        inventory.add(Kind::Dead, 2);
        assert!(Stock { inventory, books }.is_balanced());
        for kind in [Kind::Pending, Kind::Dead] {
            let mut more = inventory;
            more.add(kind, 1);
            assert!(!Stock { inventory: more, books }.is_balanced(), "{kind:?}");
        }
        assert!(!Stock { inventory, books: Books { deleted: 5, ..books } }.is_balanced());
        assert_eq!(Books { admitted: 1, dead: 2, ..Books::default() }.pending(), None);
    }
}

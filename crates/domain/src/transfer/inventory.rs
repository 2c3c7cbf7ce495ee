use super::entry::{Entry, Fate};
use crate::Status;

/// What entries are counted as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Queues,
    Quotas,
    SlotConfigs,
    Slots,
    Pending,
    Dead,
    /// Delivered, expired and deleted messages that are still remembered.
    Settled,
    /// Part of the messages' entries.
    Attempts,
    Keys,
}

/// How many there are of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Inventory([u64; Kind::ALL.len()]);

impl Kind {
    pub const ALL: [Self; 9] = [
        Self::Queues,
        Self::Quotas,
        Self::SlotConfigs,
        Self::Slots,
        Self::Pending,
        Self::Dead,
        Self::Settled,
        Self::Attempts,
        Self::Keys,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queues => "queues",
            Self::Quotas => "quotas",
            Self::SlotConfigs => "slot configs",
            Self::Slots => "slots",
            Self::Pending => "pending",
            Self::Dead => "dead letters",
            Self::Settled => "settled",
            Self::Attempts => "attempts",
            Self::Keys => "keys",
        }
    }
}

impl Inventory {
    pub fn of(&self, kind: Kind) -> u64 {
        self.0[kind as usize]
    }

    pub fn add(&mut self, kind: Kind, count: u64) {
        self.0[kind as usize] += count;
    }

    pub fn count(&mut self, entry: &Entry) {
        let kind = match entry {
            Entry::Queue(_) => Kind::Queues,
            Entry::Quota(_) => Kind::Quotas,
            Entry::SlotConfig(_) => Kind::SlotConfigs,
            Entry::Slot(_) => Kind::Slots,
            Entry::Key(_) => Kind::Keys,
            Entry::Message(message) => {
                self.add(Kind::Attempts, message.attempts.len() as u64);
                match &message.fate {
                    Fate::Pending { .. } => Kind::Pending,
                    Fate::Ended(ended) if ended.status == Status::Dead => Kind::Dead,
                    Fate::Ended(_) => Kind::Settled,
                }
            }
        };
        self.add(kind, 1);
    }

    /// Entries in all; attempts are none of their own.
    pub fn entries(&self) -> u64 {
        self.0.iter().sum::<u64>() - self.of(Kind::Attempts)
    }
}

//! What the world outside the product knows: the client of what it asked, the provider of what it was handed.

mod provider_lines;
mod tried;

use std::sync::Arc;

use tidegate_domain::MessageId;

pub use self::provider_lines::read_log_channel;
pub use self::tried::{Tried, TriedJournal, WebAnswer};

/// A client's requests in the order in which each user's were sent. A request that is tried again under the
/// same key stands here once per try.
#[derive(Debug, Clone, Default)]
pub struct ClientJournal {
    pub tries: Vec<Try>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Try {
    pub user: Arc<str>,
    /// The text, which is different for every message, and also its idempotency key.
    pub message: Arc<str>,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Ok(MessageId),
    /// Refused for good, with this status: nothing may come of it.
    Refused(u16),
    /// No answer, or one that leaves open whether it was done.
    Unknown,
}

/// What a provider was handed, in that order.
#[derive(Debug, Clone, Default)]
pub struct ProviderJournal {
    pub deliveries: Vec<Handed>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handed {
    pub id: MessageId,
    pub user: Option<Arc<str>>,
    pub message: Arc<str>,
}

impl ClientJournal {
    pub fn note(&mut self, user: impl Into<Arc<str>>, message: impl Into<Arc<str>>, outcome: Outcome) {
        self.tries.push(Try { user: user.into(), message: message.into(), outcome });
    }
}

impl ProviderJournal {
    pub fn note(&mut self, id: MessageId, user: Option<&str>, message: &str) {
        self.deliveries.push(Handed { id, user: user.map(Into::into), message: message.into() });
    }
}

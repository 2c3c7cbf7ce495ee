use std::sync::Arc;

use tidegate_domain::MessageId;

/// What a provider saw and said, attempt by attempt, in the order in which they came.
#[derive(Debug, Clone, Default)]
pub struct TriedJournal {
    pub attempts: Vec<Tried>,
    /// Requests that were no attempts.
    pub nonsense: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// Which process made it: 1 is the first.
    pub life: u32,
    pub id: MessageId,
    /// As the gateway counts.
    pub number: u32,
    pub message: Arc<str>,
    pub answer: WebAnswer,
}

/// How a provider takes an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WebAnswer {
    /// Yes, and it is true.
    Take,
    /// Yes, and nothing comes of it: the provider's lie, and its loss.
    TakeAndForget,
    /// No, though it took it.
    TakeAndFail,
    /// No.
    Fail,
    /// Never.
    Refuse,
    /// None, until the gateway has given up.
    Stall,
    /// Yes, when nobody listens any more.
    Late,
    /// None: the connection ends.
    Cut,
}

impl WebAnswer {
    pub fn says_yes(self) -> bool {
        matches!(self, Self::Take | Self::TakeAndForget)
    }
}

impl TriedJournal {
    /// The order in which the gateway made the attempts: what a killed process sent may be read after its successor's.
    pub fn in_order(&self) -> Vec<&Tried> {
        let mut attempts: Vec<_> = self.attempts.iter().collect();
        attempts.sort_by_key(|tried| tried.life);
        attempts
    }
}

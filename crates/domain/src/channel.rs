use std::fmt::Debug;

use async_trait::async_trait;
use bytes::Bytes;

use crate::Claim;

/// How a queue's messages leave: one attempt at a time.
///
/// `deliver` answers within its own deadline and never panics on a provider's behaviour. It may be called
/// for the same message again (at least once), always with the same message id. Dropping the future abandons
/// the attempt; whether the provider saw it is then unknown, and the lease decides.
#[async_trait]
pub trait Channel: Debug + Send + Sync + 'static {
    fn name(&self) -> &'static str;

    async fn deliver(&self, claim: &Claim, body: &Bytes) -> Delivery;
}

/// What came of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    Delivered,
    /// The channel has it; whether the recipient does, its ack will tell.
    Accepted,
    /// Not now. `after_ms` is what the provider asked for, if it did.
    TryLater {
        after_ms: Option<u64>,
        reason: String,
    },
    /// The attempt never began, because this process lacks something: nothing was sent. It is made later without being
    /// counted, and says nothing about the provider.
    NotTried {
        reason: String,
    },
    /// Not ever: no further attempt can succeed.
    Refused {
        reason: String,
    },
}

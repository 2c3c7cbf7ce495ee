use std::fmt::Debug;

use async_trait::async_trait;

use crate::{Claim, ClaimRequest, Extension, LedgerError, Timestamp};

/// What a ledger does for messages that travel to their sender over a [`Bus`](crate::Bus).
///
/// A lease *in transit* says that a message has left for a bus, and no more. It keeps the message's recipient in order
/// as every lease does, its token settles as every token does, but no attempt has begun: when it ends unsettled, nothing
/// is spent, and the message is claimable again with the same attempt number and the same failures.
///
/// `Ok` and the errors mean the same as on the Ledger port.
#[async_trait]
pub trait Transit: Debug + Send + Sync + 'static {
    /// Leases messages like [`claim`](crate::Ledger::claim), in transit. No more of the queue's messages than
    /// `in_transit_max` are in transit at the same time, whoever sent them off; several gateways that dispatch at the
    /// same moment may pass it by what each of them takes.
    async fn dispatch(&self, request: ClaimRequest, in_transit_max: usize)
    -> Result<Vec<Claim>, LedgerError>;

    /// An attempt begins with each of these: the lease in transit becomes an ordinary one that ends `lease_ms` from
    /// now, under a new token. The old token is worth nothing from then on, so of all who hold the same record one
    /// alone begins. A token that is not that of a current lease in transit begins nothing.
    async fn begin(&self, batch: Vec<Extension>) -> Result<Vec<Begun>, LedgerError>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    Begun {
        token: u64,
        lease_until: Timestamp,
    },
    /// Somebody else has begun, or the time on the way was over, or the message has ended, or it never was.
    LostLease,
}

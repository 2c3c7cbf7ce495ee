use tidegate_domain::{Begun, Claim, ClaimRequest, Clock, Extension};
use tokio::task::JoinHandle;

use super::steps::{LEASE_MS, QUEUE, queue};
use crate::Harness;

/// How long a message may be on its way.
pub const TRANSIT_MS: u64 = 5_000;
/// More than any case has in transit.
pub const IN_TRANSIT_MAX: usize = 1_000;

/// One step each, with the books checked after it.
impl Harness {
    pub async fn dispatch_from(&self, name: &str, max: usize, in_transit_max: usize) -> Vec<Claim> {
        let claims = self.transit().dispatch(dispatch_of(name, max, 0), in_transit_max).await;
        let claims = claims.expect("dispatch");
        let until = self.clock.now().plus_ms(TRANSIT_MS);
        assert!(claims.iter().all(|claim| claim.lease_until == until), "leased for what was asked");
        self.counts().await;
        claims
    }

    pub async fn dispatch(&self, max: usize) -> Vec<Claim> {
        self.dispatch_from(QUEUE, max, IN_TRANSIT_MAX).await
    }

    pub async fn dispatch_one(&self) -> Claim {
        self.dispatch(1).await.pop().expect("a claimable message")
    }

    /// Starts a dispatch that waits. Whether it already sleeps when the caller goes on is left to chance.
    pub async fn dispatch_waiting(&self, wait_ms: u64, in_transit_max: usize) -> JoinHandle<Vec<Claim>> {
        let transit = self.transit();
        let request = dispatch_of(QUEUE, 9, wait_ms);
        let task =
            tokio::spawn(async move { transit.dispatch(request, in_transit_max).await.expect("dispatch") });
        for _ in 0..10 {
            self.counts().await;
            tokio::task::yield_now().await;
        }
        task
    }

    pub async fn begin_all(&self, batch: Vec<Extension>) -> Vec<Begun> {
        let expected = batch.len();
        let begun = self.transit().begin(batch).await.expect("begin");
        assert_eq!(begun.len(), expected, "one answer per item");
        self.counts().await;
        begun
    }

    pub async fn begin(&self, claim: &Claim) -> Begun {
        self.begin_all(vec![beginning(claim)]).await[0]
    }

    /// Begins what nothing stands against: the claim as its sender goes on with it.
    pub async fn begun(&self, claim: &Claim) -> Claim {
        match self.begin(claim).await {
            Begun::Begun { token, lease_until } => Claim { token, lease_until, ..claim.clone() },
            Begun::LostLease => panic!("not begun: {claim:?}"),
        }
    }

    /// Lets a lease in transit of the usual length end.
    pub fn let_transit_end(&self) {
        self.clock.advance_ms(TRANSIT_MS);
    }
}

pub fn dispatch_of(name: &str, max: usize, wait_ms: u64) -> ClaimRequest {
    ClaimRequest { queue: queue(name), max, lease_ms: TRANSIT_MS, wait_ms }
}

pub fn beginning(claim: &Claim) -> Extension {
    Extension { id: claim.id, token: claim.token, lease_ms: LEASE_MS }
}

use anyhow::ensure;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tidegate_domain::{Begun, ClaimRequest, Extension, MessageId, Transit};

use super::op::Op;
use super::pair::{Pair, agree};
use crate::conformance::queue;

#[derive(Debug, Clone)]
pub enum TransitOp {
    Dispatch {
        queue: u8,
        max: usize,
        lease_ms: u64,
        in_transit_max: usize,
    },
    /// Which leases, counted back from the latest one handed out, and for how long. Some of them twice, and some of
    /// them no longer in transit.
    Begin(Vec<(usize, u64)>),
}

/// A dispatch for every beginning or two, so that some get lost on the way.
pub(super) fn transit_op(queues: u8) -> impl Strategy<Value = Op> {
    let dispatch = (
        0..queues,
        select(vec![0usize, 1, 3, 12]),
        select(vec![0, 50, 1_000, 30_000]),
        select(vec![0usize, 1, 2, 4, 100]),
    );
    let op = prop_oneof![
        3 => dispatch.prop_map(|(queue, max, lease_ms, in_transit_max)| TransitOp::Dispatch {
            queue,
            max,
            lease_ms,
            in_transit_max,
        }),
        2 => vec((0..8usize, select(vec![0, 50, 1_000, 30_000])), 1..5).prop_map(TransitOp::Begin),
    ];
    op.prop_map(Op::Transit)
}

impl Pair<'_> {
    pub(super) async fn apply_transit(&mut self, op: &TransitOp) -> anyhow::Result<()> {
        match op {
            TransitOp::Dispatch { queue: number, max, lease_ms, in_transit_max } => {
                let queue = queue(&format!("queue{number}"));
                let request = ClaimRequest { queue, max: *max, lease_ms: *lease_ms, wait_ms: 0 };
                let ours = self.subject.transit().dispatch(request.clone(), *in_transit_max).await?;
                let theirs = self.model.dispatch(request, *in_transit_max).await?;
                self.leased(&ours, &theirs)
            }
            TransitOp::Begin(batch) => self.begin(batch).await,
        }
    }

    async fn begin(&mut self, batch: &[(usize, u64)]) -> anyhow::Result<()> {
        let chosen: Vec<_> = batch
            .iter()
            .filter_map(|(back, lease_ms)| {
                let place = self.leases.len().checked_sub(1 + back)?;
                Some((self.leases[place], *lease_ms))
            })
            .collect();
        let batch_of = |side: usize| {
            let extensions = chosen.iter().map(|(lease, lease_ms)| {
                let (id, token): (MessageId, u64) = lease[side];
                Extension { id, token, lease_ms: *lease_ms }
            });
            extensions.collect::<Vec<_>>()
        };
        let ours = self.subject.transit().begin(batch_of(0)).await?;
        let theirs = self.model.begin(batch_of(1)).await?;
        ensure!(ours.len() == theirs.len(), "{} answers instead of {}", ours.len(), theirs.len());
        for ((lease, _), (ours, theirs)) in chosen.iter().zip(ours.into_iter().zip(theirs)) {
            let [(our_id, _), (their_id, _)] = *lease;
            if let (Begun::Begun { token: our_token, lease_until }, Begun::Begun { token, .. }) =
                (ours, theirs)
            {
                agree(&Begun::Begun { token, lease_until }, &theirs)?;
                self.hold(our_id, our_token, (their_id, token))?;
            } else {
                agree(&ours, &theirs)?;
            }
        }
        Ok(())
    }
}

//! Drives a ledger and the model with the same random operations and compares every answer.
//!
//! The two number their messages and tokens as they like, so ids and tokens are never compared literally: the
//! n-th message admitted by one is the n-th admitted by the other, and so with leases.

mod moves;
mod op;
mod pair;
mod property;
mod queue_ops;
mod queues;
mod slots;
mod transit;

pub use moves::{Lives, compare_moves_with_model};
pub use op::{Admit, Op, Settle, ops};
pub use property::{
    compare_queues_with_model, compare_slots_with_model, compare_spent_attempts_with_model,
    compare_with_model,
};
pub use queue_ops::queue_ops;
pub use queues::{Pick, QueueOp};
pub use slots::{Reserve, SlotOp, slot_ops};
pub use transit::TransitOp;

use anyhow::Context;

use self::pair::Pair;
use crate::{Harness, ModelLedger};

/// Applies each operation to both and compares: every reply, the books, and in the end every record. The model
/// must run on the subject's clock and settings.
pub async fn drive(subject: &Harness, model: &ModelLedger, ops: &[Op]) -> anyhow::Result<()> {
    let mut pair = Pair::new(subject, model);
    pair.apply_all(ops).await?;
    pair.compare_all().await
}

/// The same with a sweep after each operation.
async fn drive_and_sweep(subject: &Harness, model: &ModelLedger, ops: &[Op]) -> anyhow::Result<()> {
    let mut pair = Pair::new(subject, model);
    pair.sweeps_always = true;
    pair.apply_all(ops).await?;
    pair.compare_all().await
}

impl Pair<'_> {
    async fn apply_all(&mut self, ops: &[Op]) -> anyhow::Result<()> {
        for (number, op) in ops.iter().enumerate() {
            self.apply(op).await.with_context(|| format!("operation {number}, {op:?}"))?;
        }
        Ok(())
    }

    /// The books, and everything that can be looked up.
    async fn compare_all(&mut self) -> anyhow::Result<()> {
        self.apply(&Op::Sweep).await.context("the closing sweep")?;
        self.compare_records().await?;
        self.compare_slots().await?;
        self.compare_lists().await
    }
}

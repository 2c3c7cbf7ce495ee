//! Ledgers that are moved in mid-life: what they answer afterwards is what they would have answered where they were.

use anyhow::Context as _;
use proptest::prelude::*;

use super::op::Op;
use super::pair::Pair;
use super::property::{OPS_MAX, compare_sequences, queue_rules};
use super::{ops, queue_ops, slot_ops};
use crate::{Backend, Harness, ModelLedger};

/// What happens before the first move, and after each.
pub type Lives = Vec<Vec<Op>>;

/// Lives of every character, one after the other.
fn lives(moves: usize) -> impl Strategy<Value = Lives> {
    let length_max = OPS_MAX / 2;
    // Queues have the most to lose: places of requeued messages, acks, pauses.
    let life = prop_oneof![1 => ops(length_max), 3 => queue_ops(length_max), 1 => slot_ops(length_max)];
    proptest::collection::vec(life, moves + 1)
}

/// Runs `cases` random histories that go on in another ledger after each move; `backend` makes the n-th of them.
/// Everything is compared with a model that was restarted instead.
pub fn compare_moves_with_model<B: Backend>(cases: u32, moves: usize, backend: impl Fn(usize) -> B) {
    let backend = &backend;
    compare_sequences(cases, &lives(moves), &queue_rules(), backend, |subject, model, lives| async move {
        drive_lives(&subject, &model, &lives, backend).await
    });
}

async fn drive_lives<B: Backend>(
    subject: &Harness,
    model: &ModelLedger,
    lives: &Lives,
    backend: &impl Fn(usize) -> B,
) -> anyhow::Result<()> {
    let mut pair = Pair::new(subject, model);
    for (life, ops) in lives.iter().enumerate() {
        if life > 0 {
            subject.move_to(backend(life)).await.with_context(|| format!("move {life}"))?;
            model.restart();
            // What there is, before anything is made of it.
            pair.compare_all().await.with_context(|| format!("after move {life}"))?;
        }
        pair.apply_all(ops).await.with_context(|| format!("life {life}"))?;
    }
    pair.compare_all().await
}

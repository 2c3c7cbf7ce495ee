use proptest::strategy::Strategy;
use proptest::test_runner::TestCaseError;
use tidegate_domain::{QueueName, QueueRule};

use super::{Op, drive, drive_and_sweep, ops, queue_ops, slot_ops};
use crate::harness::{fair, loose, named, narrow};
use crate::seeds::property;
use crate::{Backend, Harness, ModelLedger, Setup};

pub(super) const OPS_MAX: usize = 80;

/// Small, so that random sequences fill the ledger.
const PENDING_MAX: usize = 24;
const SLOTS_MAX: usize = 40;

/// Some six messages: claims and pops end by it too.
const BATCH_BYTES_MAX: usize = 40;

/// When old slots go is a backend's own affair, within bounds: longer than any sequence takes.
const SLOT_RETENTION_MS: u64 = 400 * 86_400_000;

/// Runs `cases` random sequences, each on a fresh ledger, and panics with the shortest one that goes wrong.
pub fn compare_with_model<B: Backend>(cases: u32, backend: impl Fn() -> B) {
    compare(cases, &ops(OPS_MAX), backend);
}

/// The same with sequences that are mostly about slots.
pub fn compare_slots_with_model<B: Backend>(cases: u32, backend: impl Fn() -> B) {
    compare(cases, &slot_ops(OPS_MAX), backend);
}

/// The same with sequences that are mostly about what people and consumers do with queues.
pub fn compare_queues_with_model<B: Backend>(cases: u32, backend: impl Fn() -> B) {
    compare(cases, &queue_ops(OPS_MAX), backend);
}

/// The same with queues whose messages have few attempts. When a ledger notices that the last lease of a message has ended is
/// its own affair, so it sweeps after each operation.
pub fn compare_spent_attempts_with_model<B: Backend>(cases: u32, backend: impl Fn() -> B) {
    let few = |attempts_max, (name, rule)| (name, QueueRule { attempts_max, ..rule });
    let rules = queue_rules().into_iter().zip(1..).map(|(named, attempts_max)| few(attempts_max, named));
    let test = |subject, model, ops: Vec<Op>| async move { drive_and_sweep(&subject, &model, &ops).await };
    compare_sequences(cases, &queue_ops(OPS_MAX), &rules.collect::<Vec<_>>(), &|_| backend(), test);
}

fn compare<B: Backend>(cases: u32, sequences: &impl Strategy<Value = Vec<Op>>, backend: impl Fn() -> B) {
    let test = |subject, model, ops: Vec<Op>| async move { drive(&subject, &model, &ops).await };
    compare_sequences(cases, sequences, &queue_rules(), &|_| backend(), test);
}

pub(super) fn queue_rules() -> Vec<(QueueName, QueueRule)> {
    vec![named("queue1", fair(1)), named("queue2", loose()), named("queue3", narrow(3, 5))]
}

/// Each sequence on the first ledger that `backend` makes.
pub(super) fn compare_sequences<B: Backend, S, F>(
    cases: u32,
    sequences: &impl Strategy<Value = S>,
    queue_rules: &[(QueueName, QueueRule)],
    backend: &impl Fn(usize) -> B,
    test: impl Fn(Harness, ModelLedger, S) -> F,
) where
    F: Future<Output = anyhow::Result<()>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    property(cases, sequences, |sequence| {
        let outcome = runtime.block_on(async {
            let setup = Setup {
                pending_max: PENDING_MAX,
                pending_hard_max: PENDING_MAX + 2,
                slots_max: SLOTS_MAX,
                slot_retention_ms: SLOT_RETENTION_MS,
                batch_bytes_max: BATCH_BYTES_MAX,
                // Only a simulation knows when a ledger sweeps by itself.
                queue_forget_after_ms: u64::MAX,
                queue_rules: queue_rules.to_vec(),
                ..Setup::default()
            };
            let model = ModelLedger::new(setup.clone());
            let subject = Harness::open(backend(0), setup).await?;
            test(subject, model, sequence).await
        });
        outcome.map_err(|error| TestCaseError::fail(format!("{error:#}")))
    });
}

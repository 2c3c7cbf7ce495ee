use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use tidegate_domain::LedgerError;
use tokio::sync::{mpsc, oneshot};

/// One kind of call, many at a time: items in, one answer each, in order.
#[async_trait]
pub trait Operation: Send + Sync + 'static {
    type Item: Send + 'static;
    type Answer: Send + 'static;

    async fn run(&self, items: Vec<Self::Item>) -> Result<Vec<Self::Answer>, LedgerError>;

    /// How many bytes of a round trip an item takes.
    fn bytes(_item: &Self::Item) -> usize {
        0
    }
}

/// Collects the calls that come while a round trip is under way, and makes the next one of them.
#[derive(Debug)]
pub struct Batcher<O: Operation> {
    calls: mpsc::UnboundedSender<Call<O>>,
    waiting: Arc<AtomicUsize>,
    items_max: usize,
}

#[derive(Debug)]
struct Call<O: Operation> {
    items: Vec<O::Item>,
    answer: oneshot::Sender<Result<Vec<O::Answer>, LedgerError>>,
}

/// What one round trip carries at the most, unless a single call is larger.
const BATCH_BYTES_MAX: usize = 8 << 20;

impl<O: Operation> Batcher<O> {
    /// Within a runtime, which carries it. It ends with its last handle.
    pub fn start(operation: Arc<O>, items_max: usize, batch_max: usize) -> Self {
        let (calls, incoming) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        tokio::spawn(serve(operation, incoming, waiting.clone(), batch_max));
        Self { calls, waiting, items_max }
    }

    pub async fn call(&self, items: Vec<O::Item>) -> Result<Vec<O::Answer>, LedgerError> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let count = items.len();
        if self.waiting.fetch_add(count, Ordering::Relaxed) >= self.items_max {
            self.waiting.fetch_sub(count, Ordering::Relaxed);
            return Err(LedgerError::Overloaded);
        }
        let (answer, answered) = oneshot::channel();
        let gone = || LedgerError::Unavailable("the ledger is closed".to_owned());
        self.calls.send(Call { items, answer }).map_err(|_| gone())?;
        answered.await.map_err(|_| LedgerError::OutcomeUnknown("the ledger was closed".to_owned()))?
    }
}

async fn serve<O: Operation>(
    operation: Arc<O>,
    mut incoming: mpsc::UnboundedReceiver<Call<O>>,
    waiting: Arc<AtomicUsize>,
    batch_max: usize,
) {
    let mut left_over = None;
    loop {
        let first = match left_over.take() {
            Some(call) => call,
            None => match incoming.recv().await {
                Some(call) => call,
                None => return,
            },
        };
        let (mut items, mut bytes) = (0, 0);
        let mut calls: Vec<Call<O>> = Vec::new();
        let mut next = Some(first);
        while let Some(call) = next {
            let size: usize = call.items.iter().map(O::bytes).sum();
            let fits = items + call.items.len() <= batch_max && bytes + size <= BATCH_BYTES_MAX;
            if !calls.is_empty() && !fits {
                left_over = Some(call);
                break;
            }
            (items, bytes) = (items + call.items.len(), bytes + size);
            calls.push(call);
            next = incoming.try_recv().ok();
        }
        waiting.fetch_sub(items, Ordering::Relaxed);
        answer(&*operation, calls).await;
    }
}

async fn answer<O: Operation>(operation: &O, calls: Vec<Call<O>>) {
    let mut items = Vec::new();
    let mut asked = Vec::new();
    for call in calls {
        asked.push((call.items.len(), call.answer));
        items.extend(call.items);
    }
    // Whatever became of it, the next ones are answered.
    let result = AssertUnwindSafe(operation.run(items)).catch_unwind().await;
    let result =
        result.unwrap_or_else(|_| Err(LedgerError::OutcomeUnknown("the ledger panicked".to_owned())));
    let mut answers = match result {
        Ok(answers) => answers.into_iter(),
        Err(error) => {
            for (_, answer) in asked {
                // Whoever is gone does not want to know.
                let _ = answer.send(Err(error.clone()));
            }
            return;
        }
    };
    for (count, answer) in asked {
        let _ = answer.send(Ok(answers.by_ref().take(count).collect()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Panics;

    #[async_trait]
    impl Operation for Panics {
        type Item = bool;
        type Answer = bool;

        async fn run(&self, items: Vec<bool>) -> Result<Vec<bool>, LedgerError> {
            assert!(!items.contains(&true), "as the test wants it");
            Ok(items)
        }
    }

    #[tokio::test]
    async fn a_panic_is_its_own_batch_s_alone() {
        let batcher = Batcher::start(Arc::new(Panics), 10, 10);
        for _ in 0..3 {
            let panicked = batcher.call(vec![true]).await;
            assert!(matches!(panicked, Err(LedgerError::OutcomeUnknown(_))), "{panicked:?}");
            assert_eq!(batcher.call(vec![false]).await.unwrap(), [false]);
        }
    }
}

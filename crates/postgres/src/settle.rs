use std::sync::Arc;

use async_trait::async_trait;
use tidegate_domain::{LedgerError, QueueName, Settled, Settlement};

use crate::batch::Operation;
use crate::codes::{duration, outcome};
use crate::open::Core;

#[derive(Debug)]
pub struct Settlements(pub Arc<Core>);

#[async_trait]
impl Operation for Settlements {
    type Item = Settlement;
    type Answer = Settled;

    async fn run(&self, items: Vec<Settlement>) -> Result<Vec<Settled>, LedgerError> {
        let core = &self.0;
        let count = items.len();
        let (mut seqs, mut times, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
        let (mut kinds, mut delays, mut latencies) = (Vec::new(), Vec::new(), Vec::new());
        let mut reasons = Vec::new();
        for item in items {
            let (seq, ms) = core.parts(item.id);
            let (kind, delay_ms, reason) = outcome(item.outcome);
            seqs.push(seq);
            times.push(ms);
            tokens.push(item.token.cast_signed());
            kinds.push(kind);
            delays.push(delay_ms);
            latencies.push(duration(item.latency_ms));
            reasons.push(reason);
        }
        let rows = core
            .write(
                "SELECT place, queue FROM settle($1, $2, $3, $4, $5, $6, $7)",
                &[&seqs, &times, &tokens, &kinds, &delays, &latencies, &reasons],
            )
            .await?;
        let mut settled = vec![Settled::LostLease; count];
        for row in rows {
            let place = usize::try_from(row.get::<_, i32>(0)).unwrap_or_default();
            if let Some(settled) = settled.get_mut(place.wrapping_sub(1)) {
                *settled = Settled::Done;
            }
            if let Some(Ok(queue)) = row.get::<_, Option<&str>>(1).map(QueueName::new) {
                core.wakes.wake(&queue);
            }
        }
        Ok(settled)
    }
}

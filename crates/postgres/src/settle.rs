use std::sync::Arc;

use async_trait::async_trait;
use tidegate_domain::{Advanced, LedgerError, QueueName, Settled, Settlement};

use crate::batch::Operation;
use crate::claims::claim;
use crate::codes::{duration, outcome};
use crate::open::Core;

#[derive(Debug)]
pub struct Settlements(pub Arc<Core>);

/// A settlement, and for how long the recipient's next message is to be leased to the same caller, if it is.
#[derive(Debug)]
pub struct Step {
    pub settlement: Settlement,
    pub lease_ms: Option<u64>,
}

/// The columns of `advance` behind those of a claim.
const QUEUE: usize = 14;
const PLACE: usize = 15;
const WAKES: usize = 16;

#[async_trait]
impl Operation for Settlements {
    type Item = Step;
    type Answer = Advanced;

    async fn run(&self, items: Vec<Step>) -> Result<Vec<Advanced>, LedgerError> {
        let core = &self.0;
        let count = items.len();
        let (mut seqs, mut times, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
        let (mut kinds, mut delays, mut latencies) = (Vec::new(), Vec::new(), Vec::new());
        let (mut reasons, mut leases) = (Vec::new(), Vec::new());
        for Step { settlement, lease_ms } in items {
            let (seq, ms) = core.parts(settlement.id);
            let (kind, delay_ms, reason) = outcome(settlement.outcome);
            seqs.push(seq);
            times.push(ms);
            tokens.push(settlement.token.cast_signed());
            kinds.push(kind);
            delays.push(delay_ms);
            latencies.push(duration(settlement.latency_ms));
            reasons.push(reason);
            leases.push(lease_ms.map(duration));
        }
        let mut advanced = vec![Advanced { settled: Settled::LostLease, next: None }; count];
        let mut done = |place: i32, wakes: Option<&str>, next| {
            let place = usize::try_from(place).unwrap_or_default().wrapping_sub(1);
            if let Some(advanced) = advanced.get_mut(place) {
                *advanced = Advanced { settled: Settled::Done, next };
            }
            if let Some(Ok(queue)) = wakes.map(QueueName::new) {
                core.wakes.wake(&queue);
            }
        };
        if leases.iter().all(Option::is_none) {
            let sql = "SELECT place, queue FROM settle($1, $2, $3, $4, $5, $6, $7)";
            let rows =
                core.write(sql, &[&seqs, &times, &tokens, &kinds, &delays, &latencies, &reasons]).await?;
            rows.iter().for_each(|row| done(row.get(0), row.get(1), None));
        } else {
            let sql = "SELECT * FROM advance($1, $2, $3, $4, $5, $6, $7, $8)";
            let rows = core
                .write(sql, &[&seqs, &times, &tokens, &kinds, &delays, &latencies, &reasons, &leases])
                .await?;
            for row in &rows {
                let queue = row.get::<_, Option<&str>>(QUEUE).and_then(|name| QueueName::new(name).ok());
                let next = queue.map(|queue: QueueName| claim(core, &queue, row));
                done(row.get(PLACE), row.get(WAKES), next);
            }
        }
        Ok(advanced)
    }
}

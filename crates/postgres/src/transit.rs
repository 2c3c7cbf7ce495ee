use std::sync::Arc;

use async_trait::async_trait;
use tidegate_domain::{Begun, Claim, ClaimRequest, Extension, LedgerError, QueueName, Timestamp, Transit};

use crate::Postgres;
use crate::batch::Operation;
use crate::claims::Taking;
use crate::codes::duration;
use crate::open::Core;

/// Attempts that begin with messages in transit.
#[derive(Debug)]
pub struct Beginnings(pub Arc<Core>);

#[async_trait]
impl Transit for Postgres {
    async fn dispatch(
        &self,
        request: ClaimRequest,
        in_transit_max: usize,
    ) -> Result<Vec<Claim>, LedgerError> {
        let taking = Taking::Transit { lease_ms: request.lease_ms, in_transit_max };
        self.take(request.queue, taking, request.max, request.wait_ms).await
    }

    async fn begin(&self, batch: Vec<Extension>) -> Result<Vec<Begun>, LedgerError> {
        self.beginnings.call(batch).await
    }
}

#[async_trait]
impl Operation for Beginnings {
    type Item = Extension;
    type Answer = Begun;

    async fn run(&self, items: Vec<Extension>) -> Result<Vec<Begun>, LedgerError> {
        let core = &self.0;
        let (seqs, times): (Vec<_>, Vec<_>) = items.iter().map(|item| core.parts(item.id)).unzip();
        let tokens: Vec<_> = items.iter().map(|item| item.token.cast_signed()).collect();
        let leases: Vec<_> = items.iter().map(|item| duration(item.lease_ms)).collect();
        let sql = "SELECT place, token, ends_at, queue FROM begin_attempts($1, $2, $3, $4)";
        let rows = core.write(sql, &[&seqs, &times, &tokens, &leases]).await?;
        let mut begun = vec![Begun::LostLease; items.len()];
        for row in rows {
            let place = usize::try_from(row.get::<_, i32>(0)).unwrap_or_default();
            if let Some(begun) = begun.get_mut(place.wrapping_sub(1)) {
                let token = row.get::<_, i64>(1).unsigned_abs();
                *begun = Begun::Begun { token, lease_until: Timestamp::from_millis(row.get(2)) };
            }
            // There is room for one more in transit.
            if let Ok(queue) = QueueName::new(row.get(3)) {
                core.wakes.wake(&queue);
            }
        }
        Ok(begun)
    }
}

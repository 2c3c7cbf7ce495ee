use std::time::Duration;

use async_trait::async_trait;
use tidegate_domain::{Begun, Claim, ClaimRequest, Clock, Extension, LedgerError, Timestamp, Transit};
use tokio::time::Instant;

use super::row::{Lease, Row};
use super::rules::Rules;
use super::{ModelLedger, POLL};
use crate::Setup;

#[async_trait]
impl Transit for ModelLedger {
    async fn dispatch(
        &self,
        request: ClaimRequest,
        in_transit_max: usize,
    ) -> Result<Vec<Claim>, LedgerError> {
        let deadline = Instant::now() + Duration::from_millis(request.wait_ms);
        loop {
            let claims = self.rules().dispatch(&request, in_transit_max, &self.setup);
            if !claims.is_empty() || Instant::now() >= deadline {
                return Ok(claims);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn begin(&self, batch: Vec<Extension>) -> Result<Vec<Begun>, LedgerError> {
        let (mut rules, now) = (self.rules(), self.setup.clock.now());
        Ok(batch.iter().map(|extension| rules.begin(extension, now)).collect())
    }
}

impl Rules {
    fn dispatch(&mut self, request: &ClaimRequest, in_transit_max: usize, setup: &Setup) -> Vec<Claim> {
        let is_in_transit =
            |row: &&Row| row.record.queue == request.queue && row.lease.is_some_and(|lease| lease.in_transit);
        let in_transit = self.rows.iter().filter(is_in_transit).count();
        let max = request.max.min(in_transit_max.saturating_sub(in_transit));
        self.lease(request, (max, setup.batch_bytes_max), true, setup.clock.now())
    }

    fn begin(&mut self, extension: &Extension, now: Timestamp) -> Begun {
        let (token, until) = (self.next_token(), now.plus_ms(extension.lease_ms));
        let lease = self.known(extension.id).and_then(|row| row.lease.as_mut());
        match lease.filter(|lease| lease.in_transit && lease.token == extension.token) {
            None => Begun::LostLease,
            Some(lease) => {
                *lease = Lease { token, until, in_transit: false, ..*lease };
                Begun::Begun { token, lease_until: until }
            }
        }
    }
}

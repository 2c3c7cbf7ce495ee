use std::time::Duration;

use async_trait::async_trait;
use tidegate_domain::{Begun, Claim, ClaimRequest, Extension, LedgerError, Transit};

use super::NoLedger;

#[async_trait]
impl Transit for NoLedger {
    async fn dispatch(&self, request: ClaimRequest, _: usize) -> Result<Vec<Claim>, LedgerError> {
        tokio::time::sleep(Duration::from_millis(request.wait_ms)).await;
        Ok(Vec::new())
    }

    async fn begin(&self, batch: Vec<Extension>) -> Result<Vec<Begun>, LedgerError> {
        Ok(vec![Begun::LostLease; batch.len()])
    }
}

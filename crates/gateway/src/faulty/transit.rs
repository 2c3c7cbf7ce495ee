use std::sync::atomic::Ordering;

use async_trait::async_trait;
use tidegate_domain::*;

use super::FaultyLedger;

#[async_trait]
impl Transit for FaultyLedger {
    async fn dispatch(
        &self,
        request: ClaimRequest,
        in_transit_max: usize,
    ) -> Result<Vec<Claim>, LedgerError> {
        self.sender_fault()?;
        self.ledger.dispatch(request, in_transit_max).await
    }

    async fn begin(&self, batch: Vec<Extension>) -> Result<Vec<Begun>, LedgerError> {
        self.sender_fault()?;
        let begun = self.ledger.begin(batch).await?;
        let count = begun.iter().filter(|begun| matches!(begun, Begun::Begun { .. })).count();
        self.begun.fetch_add(count, Ordering::SeqCst);
        Ok(begun)
    }
}

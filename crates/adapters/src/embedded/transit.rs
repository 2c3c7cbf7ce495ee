use async_trait::async_trait;
use tidegate_domain::{Begun, Claim, ClaimRequest, Extension, LedgerError, Transit};

use super::Embedded;
use super::engine::Way;
use super::writer::Command;

#[async_trait]
impl Transit for Embedded {
    async fn dispatch(
        &self,
        request: ClaimRequest,
        in_transit_max: usize,
    ) -> Result<Vec<Claim>, LedgerError> {
        self.claim_texts(request, Way::Transit { in_transit_max }).await
    }

    async fn begin(&self, batch: Vec<Extension>) -> Result<Vec<Begun>, LedgerError> {
        self.ask(|reply| Command::Begin(batch, reply)).await
    }
}

use std::sync::Arc;

use tidegate_domain::limits::QuotaCache;

use crate::live_policies::LivePolicies;

/// What says no before the ledger is asked.
#[derive(Debug)]
pub struct Limiters {
    pub policies: Arc<LivePolicies>,
    pub quota_cache: Option<Arc<dyn QuotaCache>>,
}

impl From<Arc<LivePolicies>> for Limiters {
    fn from(policies: Arc<LivePolicies>) -> Self {
        Self { policies, quota_cache: None }
    }
}

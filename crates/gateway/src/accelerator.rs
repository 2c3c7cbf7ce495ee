//! The quota accelerator: a ledger that is not asked about users who have used up their quota.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use tidegate_domain::limits::{Count, Counted, Quota, QuotaCache, QuotaRule, QuotaWindow, Ticket};
use tidegate_domain::{
    Admission, Admitted, Advanced, Claim, ClaimRequest, Counts, Durability, Health, Lane, Ledger,
    LedgerError, MessageId, MessageRecord, OnLimit, Settled, Settlement, UserId,
};

/// A ledger behind a [`QuotaCache`].
///
/// A message is counted in the cache, and then charged by the ledger all the same. Two kinds of messages are never denied
/// by the cache alone: those that may be deferred, and those with an idempotency key, which may be a repetition that
/// has its answer. The latter are not even counted beforehand, since repetitions would use up the quota; what the
/// ledger says of them is learnt.
///
/// Nobody waits for the cache but to be counted. It learns in the background.
#[derive(Debug)]
pub struct Accelerated {
    ledger: Arc<dyn Ledger>,
    cache: Arc<dyn QuotaCache>,
}

enum Asked {
    Denied(QuotaWindow),
    /// The ledger decides, and the cache may want to hear of it.
    Open(Option<Hearer>),
}

struct Hearer {
    user: UserId,
    /// Where the message was counted.
    counted_in: Option<QuotaWindow>,
    ticket: Option<Ticket>,
}

impl Accelerated {
    pub fn new(ledger: Arc<dyn Ledger>, cache: Arc<dyn QuotaCache>) -> Self {
        Self { ledger, cache }
    }

    pub fn is_degraded(&self) -> bool {
        self.cache.is_away()
    }

    /// Whether the cache alone denies it, while the ledger can't be asked. Counts nothing: it will not be admitted.
    pub async fn denial(&self, admission: &Admission) -> Option<Admitted> {
        let user = admission.charge.as_ref().filter(|_| can_be_denied(admission))?;
        let counted = self.cache.count(user, Count::Look).await;
        note(result_of(&counted));
        match counted {
            Counted::Denied(window) => Some(over_quota(window)),
            _ => None,
        }
    }

    async fn ask(&self, admission: &Admission) -> Asked {
        let Some(user) = &admission.charge else { return Asked::Open(None) };
        let open = |counted_in, ticket| Asked::Open(Some(Hearer { user: user.clone(), counted_in, ticket }));
        if admission.idempotency.is_some() {
            note("keyed");
            return open(None, None);
        }
        let counted = self.cache.count(user, Count::One).await;
        let denied = matches!(counted, Counted::Denied(_));
        note(if denied && !can_be_denied(admission) { "deferrable" } else { result_of(&counted) });
        match counted {
            Counted::Denied(window) if can_be_denied(admission) => Asked::Denied(window),
            Counted::Denied(_) => open(None, None),
            Counted::Passed(window) => open(Some(window), None),
            Counted::Unknown(ticket) => open(None, ticket),
            Counted::Away => Asked::Open(None),
        }
    }

    fn tell(&self, hearer: Hearer, admitted: &Admitted) {
        let Some(window) = window_of(admitted) else { return };
        let charged = matches!(admitted, Admitted::Admitted { .. });
        if charged && hearer.counted_in.is_some_and(|counted_in| counted_in.is_same_as(&window)) {
            return;
        }
        let cache = self.cache.clone();
        tokio::spawn(async move { cache.learn(&hearer.user, window, hearer.ticket).await });
    }

    /// In a task of its own: a caller who hangs up must not keep the cache from hearing what was committed.
    async fn change<T: Send + 'static>(
        &self,
        user: UserId,
        change: impl Future<Output = Result<T, LedgerError>> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let cache = self.cache.clone();
        let changing = tokio::spawn(async move {
            let changed = change.await;
            // Whatever became of it: to forget needlessly costs one question to the ledger.
            cache.forget(&user).await;
            changed
        });
        changing.await.unwrap_or_else(|error| Err(LedgerError::OutcomeUnknown(error.to_string())))
    }
}

#[async_trait]
impl Ledger for Accelerated {
    async fn admit(&self, batch: Vec<Admission>) -> Result<Vec<Admitted>, LedgerError> {
        let asked = join_all(batch.iter().map(|admission| self.ask(admission))).await;
        let open = batch.into_iter().zip(&asked).filter(|(_, asked)| matches!(asked, Asked::Open(_)));
        let open: Vec<_> = open.map(|(admission, _)| admission).collect();
        let decided = if open.is_empty() { Vec::new() } else { self.ledger.admit(open).await? };
        let mut decided = decided.into_iter();
        let answer = |asked| match asked {
            Asked::Denied(window) => Some(over_quota(window)),
            Asked::Open(hearer) => {
                let admitted = decided.next()?;
                if let Some(hearer) = hearer {
                    self.tell(hearer, &admitted);
                }
                Some(admitted)
            }
        };
        Ok(asked.into_iter().filter_map(answer).collect())
    }

    async fn set_quota(&self, user: UserId, rule: QuotaRule) -> Result<Quota, LedgerError> {
        let (ledger, whose) = (self.ledger.clone(), user.clone());
        self.change(user, async move { ledger.set_quota(whose, rule).await }).await
    }

    async fn delete_quota(&self, user: UserId) -> Result<bool, LedgerError> {
        let (ledger, whose) = (self.ledger.clone(), user.clone());
        self.change(user, async move { ledger.delete_quota(whose).await }).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claim>, LedgerError> {
        self.ledger.claim(request).await
    }

    async fn settle(&self, batch: Vec<Settlement>) -> Result<Vec<Settled>, LedgerError> {
        self.ledger.settle(batch).await
    }

    async fn advance(&self, batch: Vec<Settlement>, lease_ms: u64) -> Result<Vec<Advanced>, LedgerError> {
        self.ledger.advance(batch, lease_ms).await
    }

    async fn quota(&self, user: UserId) -> Result<Option<Quota>, LedgerError> {
        self.ledger.quota(user).await
    }

    async fn quotas(&self, after: Option<UserId>, max: usize) -> Result<Vec<(UserId, Quota)>, LedgerError> {
        self.ledger.quotas(after, max).await
    }

    async fn message(&self, id: MessageId) -> Result<Option<MessageRecord>, LedgerError> {
        self.ledger.message(id).await
    }

    async fn counts(&self) -> Result<Counts, LedgerError> {
        self.ledger.counts().await
    }

    async fn sweep(&self) -> Result<(), LedgerError> {
        self.ledger.sweep().await
    }

    fn durability(&self) -> Durability {
        self.ledger.durability()
    }

    fn health(&self) -> Health {
        self.ledger.health()
    }

    async fn failed(&self) -> String {
        self.ledger.failed().await
    }
}

/// A repetition has its answer, a later window may have room, and the quota may exempt what is urgent: all that only the
/// ledger knows.
fn can_be_denied(admission: &Admission) -> bool {
    let plain = admission.idempotency.is_none() && admission.on_limit == OnLimit::Deny;
    plain && admission.lane != Lane::High
}

/// As the ledger would have said it.
fn over_quota(window: QuotaWindow) -> Admitted {
    Admitted::OverQuota { retry_after_ms: window.rest_ms(), at: window.at, quota: window.quota }
}

fn window_of(admitted: &Admitted) -> Option<QuotaWindow> {
    match *admitted {
        Admitted::Admitted { at, quota: Some(quota), .. }
        | Admitted::Deferred { at, quota, .. }
        | Admitted::OverQuota { at, quota, .. } => Some(QuotaWindow { quota, at }),
        _ => None,
    }
}

fn result_of(counted: &Counted) -> &'static str {
    match counted {
        Counted::Passed(_) => "hit",
        Counted::Denied(_) => "denied",
        Counted::Unknown(_) => "miss",
        Counted::Away => "down",
    }
}

fn note(result: &'static str) {
    metrics::counter!("tidegate_quota_cache_total", "result" => result).increment(1);
}

#[cfg(test)]
mod tests;

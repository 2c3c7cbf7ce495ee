//! The quota accelerator: how far users are into the running windows of their quotas, in front of the ledger.

mod changes;
mod scripts;
mod upkeep;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_domain::UserId;
use tidegate_domain::limits::{Count, Counted, QuotaCache, QuotaWindow, Ticket};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::changes::Changes;
use self::scripts::Scripts;
use crate::Endpoint;
use crate::link::{Link, Words};

const WORDS: Words = Words {
    away: "REDIS DOWN — Falling back to Postgres",
    there: "Redis is there; it answers for quotas that are used up",
};

/// The [`QuotaCache`] of all gateways that name the same Redis and database there.
///
/// **A hash** `RateLimiterCache:USER` with `rateLimit`, `currentCount`, `windowMs` and `endsAtMs` lives as long as the
/// window. `endsAtMs` and all that is answered are in the ledger's time; Redis only measures how much of the window is
/// left, from before the ledger was asked, so that the hash ends no later than the window.
///
/// **A user who is not known** is told of by one caller at a time, the one with the ticket
/// (`{RateLimiterCache:USER}:ticket`, good for a second); the others ask the ledger alone. A change of the quota deletes
/// hash and ticket, so that what was read before it is not put down after it.
///
/// **A change that Redis could not be told of** is told as soon as it answers again, before anybody is sent there. What
/// a gateway that is killed meanwhile would have told, the end of the window tells.
///
/// **Each user is a slot** of their own in a Redis Cluster; this goes to one node only, which has to serve them all.
///
/// **Redis away**: see [`Link`].
#[derive(Debug)]
pub struct RedisQuotas {
    shared: Arc<Shared>,
    upkeep: JoinHandle<()>,
}

#[derive(Debug, Clone)]
pub struct Options {
    pub endpoint: Endpoint,
    /// For dialling, TLS and the login together.
    pub connect_timeout: Duration,
    /// What a request waits for Redis, at most.
    pub call_timeout: Duration,
    /// Calls under way at the same time; beyond, they fail at once.
    pub calls_max: usize,
    /// How long somebody who was told to fill has time for it; then another is told. The same on all gateways.
    pub ticket_ms: u64,
}

/// What requests and the upkeep share.
#[derive(Debug)]
struct Shared {
    link: Link,
    call_timeout: Duration,
    scripts: Scripts,
    changes: Changes,
    /// Tells this process' tickets from all others'.
    life: u64,
    tickets: AtomicU64,
}

impl Options {
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            connect_timeout: Duration::from_millis(500),
            call_timeout: Duration::from_millis(50),
            calls_max: 4_096,
            ticket_ms: 1_000,
        }
    }
}

impl RedisQuotas {
    /// Tries to connect once, and goes on trying in the background when that fails.
    pub async fn open(options: Options) -> Result<Self, getrandom::Error> {
        let shared = Arc::new(Shared {
            link: Link::new(options.endpoint, options.connect_timeout, options.calls_max, WORDS),
            call_timeout: options.call_timeout,
            scripts: Scripts::new(options.ticket_ms),
            changes: Changes::default(),
            life: getrandom::u64()?,
            tickets: AtomicU64::new(0),
        });
        shared.first_connection().await;
        let upkeep = tokio::spawn(upkeep::run(shared.clone()));
        Ok(Self { shared, upkeep })
    }
}

impl Drop for RedisQuotas {
    fn drop(&mut self) {
        self.upkeep.abort();
    }
}

impl Shared {
    fn deadline(&self) -> Instant {
        Instant::now() + self.call_timeout
    }

    fn new_ticket(&self) -> Ticket {
        let number = self.tickets.fetch_add(1, Ordering::Relaxed);
        Ticket(format!("{:016x}-{number}", self.life))
    }
}

#[async_trait]
impl QuotaCache for RedisQuotas {
    async fn count(&self, user: &UserId, how: Count) -> Counted {
        let shared = &self.shared;
        let ticket = (how == Count::One).then(|| shared.new_ticket());
        let count = async |connection| shared.scripts.count(connection, user, how, ticket).await;
        shared.link.call(shared.deadline(), count).await.unwrap_or(Counted::Away)
    }

    async fn learn(&self, user: &UserId, window: QuotaWindow, ticket: Option<Ticket>) {
        let shared = &self.shared;
        let learn = async |connection| shared.scripts.learn(connection, user, &window, ticket).await;
        // Not learnt is as good as forgotten.
        let _ = shared.link.call(shared.deadline(), learn).await;
    }

    async fn forget(&self, user: &UserId) {
        let shared = &self.shared;
        let change = shared.changes.add(user);
        let users = std::slice::from_ref(user);
        let forget = async |connection| scripts::forget(connection, users).await;
        match shared.link.call(shared.deadline(), forget).await {
            Ok(()) => shared.changes.done(&[(user.clone(), change)]),
            Err(_) => shared.changes.wake(),
        }
    }

    fn is_away(&self) -> bool {
        self.shared.link.is_away()
    }
}

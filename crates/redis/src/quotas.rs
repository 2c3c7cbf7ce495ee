//! How far users are into the running window of their quota, in front of the ledger that keeps it.

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, RedisResult, Value};

use crate::script::{Script, Time};

/// How long somebody who was told to fill has time for it; then another is told.
const TICKET_MS: u64 = 1_000;

/// A hash `RateLimiterCache:USER` with `rateLimit` and `currentCount` that lives as long as the window.
///
/// It answers denials without the ledger. An admission is counted here first and never taken back; the ledger charges it
/// once more, in the transaction that keeps the message, and has the last word. So this may deny too early, by as many
/// as were counted here and then not admitted, until the window ends; and however much of it is lost, in a FLUSHALL or a
/// failover, no window holds more than its limit.
///
/// A user who is not known here is read from the ledger by one caller at a time, the one with the ticket; the others
/// ask the ledger alone. A change of the quota deletes hash and ticket, so that what was read before it is not put
/// down after it.
#[derive(Debug)]
pub struct QuotaCache {
    charge: Script,
    fill: Script,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Counted, and the window stands like this now.
    Passed(Window),
    Denied(Window),
    /// Nothing is known of the user.
    Unknown {
        /// The caller's ticket is good for [`fill`](QuotaCache::fill).
        fill: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub limit: u64,
    pub count: u64,
    pub rest_ms: u64,
}

impl QuotaCache {
    pub fn new() -> Self {
        let script = |body| Script::new(&Time::Server, body);
        Self {
            charge: script(include_str!("quotas/charge.lua")),
            fill: script(include_str!("quotas/fill.lua")),
        }
    }

    /// `ticket` is the caller's own, and new with every call.
    pub async fn charge(
        &self,
        connection: MultiplexedConnection,
        user: &str,
        messages: u32,
        ticket: &str,
    ) -> RedisResult<Counted> {
        let args = [messages.to_string(), ticket.to_owned(), TICKET_MS.to_string()];
        let answer = self.charge.call(connection, &keys(user), &args).await?;
        match numbers(&answer).as_deref() {
            Some([2, fill]) => Ok(Counted::Unknown { fill: *fill == 1 }),
            Some([passed, limit, count, rest_ms]) => {
                let window = Window { limit: *limit, count: *count, rest_ms: *rest_ms };
                Ok(if *passed == 1 { Counted::Passed(window) } else { Counted::Denied(window) })
            }
            _ => Err(strange()),
        }
    }

    /// False when the quota was changed meanwhile, or the ticket's time is over: ask again.
    pub async fn fill(
        &self,
        connection: MultiplexedConnection,
        user: &str,
        ticket: &str,
        window: Window,
    ) -> RedisResult<bool> {
        let Window { limit, count, rest_ms } = window;
        let args = [ticket.to_owned(), limit.to_string(), count.to_string(), rest_ms.max(1).to_string()];
        let answer = self.fill.call(connection, &keys(user), &args).await?;
        Ok(answer == Value::Int(1))
    }

    /// After a change of the quota in the ledger.
    pub async fn forget(&self, mut connection: MultiplexedConnection, user: &str) -> RedisResult<()> {
        redis::cmd("DEL").arg(&keys(user)).query_async(&mut connection).await
    }
}

impl Default for QuotaCache {
    fn default() -> Self {
        Self::new()
    }
}

/// The hash, and its ticket in the same slot of a Redis Cluster: each user has a slot of their own. Braces in a user's
/// id would make a slot of a part of it.
fn keys(user: &str) -> [String; 2] {
    let user = user.replace('%', "%25").replace('{', "%7B").replace('}', "%7D");
    [format!("RateLimiterCache:{user}"), format!("{{RateLimiterCache:{user}}}:ticket")]
}

fn numbers(answer: &Value) -> Option<Vec<u64>> {
    let Value::Array(items) = answer else { return None };
    let number = |item: &Value| match item {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    };
    items.iter().map(number).collect()
}

fn strange() -> RedisError {
    RedisError::from((ErrorKind::UnexpectedReturnType, "an answer that no script of ours gives"))
}

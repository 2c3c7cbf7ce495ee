use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, RedisResult, Value};
use tidegate_domain::limits::{Count, Counted, Quota, QuotaWindow, Ticket};
use tidegate_domain::{Timestamp, UserId};

use crate::script::{Script, Time};

const NO_TICKET: &str = "";

#[derive(Debug)]
pub struct Scripts {
    count: Script,
    learn: Script,
    ticket_ms: String,
}

impl Scripts {
    pub fn new(ticket_ms: u64) -> Self {
        let script = |body| Script::new(&Time::Server, body);
        let (count, learn) = (script(include_str!("count.lua")), script(include_str!("learn.lua")));
        Self { count, learn, ticket_ms: ticket_ms.to_string() }
    }

    pub async fn count(
        &self,
        connection: MultiplexedConnection,
        user: &UserId,
        how: Count,
        ticket: Option<Ticket>,
    ) -> RedisResult<Counted> {
        let messages = if how == Count::One { "1" } else { "0" };
        let args = [messages, ticket.as_ref().map_or(NO_TICKET, |ticket| &ticket.0), &self.ticket_ms];
        let answer = self.count.call(connection, &keys(user.as_str()), &args).await?;
        match numbers(&answer).as_deref() {
            Some([2, mine]) => Ok(Counted::Unknown(ticket.filter(|_| *mine == 1))),
            Some([passed, window @ ..]) => {
                let window = window_of(window).ok_or_else(strange)?;
                Ok(if *passed == 1 { Counted::Passed(window) } else { Counted::Denied(window) })
            }
            _ => Err(strange()),
        }
    }

    pub async fn learn(
        &self,
        connection: MultiplexedConnection,
        user: &UserId,
        window: &QuotaWindow,
        ticket: Option<Ticket>,
    ) -> RedisResult<bool> {
        let ticket = ticket.map_or_else(|| NO_TICKET.to_owned(), |ticket| ticket.0);
        let numbers = [
            i64::from(window.quota.limit),
            i64::from(window.quota.count),
            signed(window.quota.window_ms),
            window.ends_at().millis(),
            signed(window.rest_ms()),
        ];
        let mut args = vec![ticket, self.ticket_ms.clone()];
        args.extend(numbers.map(|number| number.to_string()));
        let answer = self.learn.call(connection, &keys(user.as_str()), &args).await?;
        Ok(answer == Value::Int(1))
    }

    /// Asks as requests do, about nobody: no user's id is empty.
    pub async fn probe(&self, connection: MultiplexedConnection) -> RedisResult<()> {
        let args = ["0", "probe", &self.ticket_ms];
        self.count.call(connection, &keys(""), &args).await.map(drop)
    }
}

/// Hashes and tickets, in one step for each user.
pub async fn forget(mut connection: MultiplexedConnection, users: &[UserId]) -> RedisResult<()> {
    let mut deletes = redis::pipe();
    for user in users {
        deletes.del(&keys(user.as_str())).ignore();
    }
    deletes.query_async(&mut connection).await
}

/// The hash, and its ticket in the same slot of a Redis Cluster: each user has a slot of their own. Braces in a user's
/// id would make a slot of a part of it.
fn keys(user: &str) -> [String; 2] {
    let user = user.replace('%', "%25").replace('{', "%7B").replace('}', "%7D");
    [format!("RateLimiterCache:{user}"), format!("{{RateLimiterCache:{user}}}:ticket")]
}

fn window_of(numbers: &[i64]) -> Option<QuotaWindow> {
    let [limit, count, window_ms, ends_at_ms, rest_ms] = *numbers else { return None };
    let unsigned = |number: i64| u64::try_from(number).ok();
    let (window_ms, ends_at) = (unsigned(window_ms)?, Timestamp::from_millis(ends_at_ms));
    let (limit, count) = (u32::try_from(limit).ok()?, u32::try_from(count).ok()?);
    // The hash does not know whom the quota exempts; it decides about no message that may be.
    let quota = Quota { count, ..Quota::new(limit, window_ms, ends_at.minus_ms(window_ms)) };
    Some(QuotaWindow { quota, at: ends_at.minus_ms(unsigned(rest_ms)?) })
}

fn numbers(answer: &Value) -> Option<Vec<i64>> {
    let Value::Array(items) = answer else { return None };
    let number = |item: &Value| match item {
        Value::Int(number) => Some(*number),
        _ => None,
    };
    items.iter().map(number).collect()
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn strange() -> RedisError {
    RedisError::from((ErrorKind::UnexpectedReturnType, "an answer that no script of ours gives"))
}

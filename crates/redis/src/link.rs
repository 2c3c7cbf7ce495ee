mod pauses;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, RedisResult, ServerErrorKind};
use tidegate_domain::limits::BucketsError;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use self::pauses::Pauses;
use crate::Endpoint;

/// Calls in a row that Redis did not answer in time, or with an error, before nobody is sent there any more. One slow
/// command of somebody else is no reason.
const FAILURES_MAX: u32 = 3;

const AWAY: &str = "Redis is away";

/// One connection that all calls share, with a breaker in front of it.
///
/// Closed, there is a connection, and calls have until their deadline. It opens when the connection breaks, or after
/// some failures in a row: the connection is given up, and calls fail at once. Whoever keeps the link makes a new
/// connection in the background, tries it, and with it the breaker closes: no request pays for a probe.
#[derive(Debug)]
pub struct Link {
    endpoint: Endpoint,
    words: Words,
    connect_timeout: Duration,
    connection: ArcSwapOption<MultiplexedConnection>,
    calls: Semaphore,
    /// In a row.
    failures: AtomicU32,
    failed_calls: AtomicU64,
    given_up: Notify,
    /// The node of a Redis Cluster that we were sent to.
    node: Mutex<Option<(String, u16)>>,
    pauses: Mutex<Pauses>,
}

/// What the log says, once when Redis goes and once when it comes.
#[derive(Debug, Clone, Copy)]
pub struct Words {
    pub away: &'static str,
    pub there: &'static str,
}

/// Redis did not answer a call, or not what was asked; for people, without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoAnswer(pub String);

impl From<NoAnswer> for BucketsError {
    fn from(NoAnswer(why): NoAnswer) -> Self {
        Self::Unavailable(why)
    }
}

impl Link {
    pub fn new(endpoint: Endpoint, connect_timeout: Duration, calls_max: usize, words: Words) -> Self {
        Self {
            endpoint,
            words,
            connect_timeout,
            connection: ArcSwapOption::empty(),
            calls: Semaphore::new(calls_max.min(Semaphore::MAX_PERMITS)),
            failures: AtomicU32::new(0),
            failed_calls: AtomicU64::new(0),
            given_up: Notify::new(),
            node: Mutex::default(),
            pauses: Mutex::default(),
        }
    }

    pub fn is_away(&self) -> bool {
        self.connection.load().is_none()
    }

    /// For what needs no call, yet must not be said while nothing is known.
    pub fn check(&self) -> Result<(), NoAnswer> {
        if self.is_away() { Err(self.failed(AWAY)) } else { Ok(()) }
    }

    pub fn failed_calls(&self) -> u64 {
        self.failed_calls.load(Ordering::Relaxed)
    }

    /// One call, answered by `deadline` or not at all.
    pub async fn call<T>(
        &self,
        deadline: Instant,
        ask: impl AsyncFnOnce(MultiplexedConnection) -> RedisResult<T>,
    ) -> Result<T, NoAnswer> {
        let Some(connection) = self.connection.load_full() else {
            return Err(self.failed(AWAY));
        };
        let Ok(_call) = self.calls.try_acquire() else {
            return Err(self.failed("too many calls to Redis are under way"));
        };
        match timeout_at(deadline, ask(connection.as_ref().clone())).await {
            Ok(Ok(answer)) => {
                if self.failures.load(Ordering::Relaxed) != 0 {
                    self.failures.store(0, Ordering::Relaxed);
                }
                Ok(answer)
            }
            Ok(Err(error)) => {
                let broken = self.redirected(&error) || error.is_unrecoverable_error();
                let said = describe(&error);
                self.judge(&connection, broken, &said);
                Err(self.failed(&said))
            }
            Err(_) => {
                self.judge(&connection, false, "it does not answer in time");
                Err(self.failed("Redis did not answer in time"))
            }
        }
    }

    /// The connection in use, for calls with deadlines of their own that no request waits for.
    pub fn current(&self) -> Option<MultiplexedConnection> {
        self.connection.load().as_ref().map(|connection| connection.as_ref().clone())
    }

    /// A call that no request waits for, beside the others: it takes no place of a request, and tells the breaker only of a
    /// connection that broke.
    pub async fn aside<T>(
        &self,
        within: Duration,
        ask: impl AsyncFnOnce(MultiplexedConnection) -> RedisResult<T>,
    ) -> Option<T> {
        let connection = self.connection.load_full()?;
        match timeout(within, ask(connection.as_ref().clone())).await {
            Ok(Ok(answer)) => Some(answer),
            Ok(Err(error)) => {
                if self.redirected(&error) || error.is_unrecoverable_error() {
                    self.judge(&connection, true, &describe(&error));
                }
                None
            }
            Err(_) => None,
        }
    }

    /// A new connection, logged in. Not in use before [`close`](Self::close).
    pub async fn connect(&self) -> Result<MultiplexedConnection, String> {
        let node = self.node.lock().unwrap_or_else(PoisonError::into_inner).take();
        let info = node.map_or_else(|| self.endpoint.info(), |(host, port)| self.endpoint.at((&host, port)));
        let dialling = async {
            // Calls have their own deadline.
            let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
            Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await
        };
        match timeout(self.connect_timeout, dialling).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(describe(&error)),
            Err(_) => Err("it does not answer in time".to_owned()),
        }
    }

    /// Whether the error sends us to another node for good; then the next connection goes there. A slot that is still
    /// moving sends single calls there (`ASK`), which would send us back: such a call has failed, and that is all.
    pub fn redirected(&self, error: &RedisError) -> bool {
        if error.kind() != ErrorKind::Server(ServerErrorKind::Moved) {
            return false;
        }
        let node = error.redirect_node().and_then(|(address, _slot)| {
            let (host, port) = address.rsplit_once(':')?;
            Some((host.to_owned(), port.parse().ok()?))
        });
        let found = node.is_some();
        if found {
            *self.node.lock().unwrap_or_else(PoisonError::into_inner) = node;
        }
        found
    }

    /// The breaker closes: calls go to this connection.
    pub fn close(&self, connection: MultiplexedConnection) {
        self.failures.store(0, Ordering::Relaxed);
        self.pauses().connected();
        self.connection.store(Some(Arc::new(connection)));
    }

    /// The breaker opens, whatever the connection has to say.
    pub fn open(&self, why: &str) {
        if self.connection.swap(None).is_some() {
            self.say_away(why);
            self.given_up.notify_one();
        }
    }

    /// Until there is no connection.
    pub async fn opened(&self) {
        while !self.is_away() {
            self.given_up.notified().await;
        }
    }

    /// At the start: `reconnecting` makes a connection and [`close`](Self::close)s the breaker with it, if it can.
    pub async fn first(&self, reconnecting: impl Future<Output = Result<(), String>>) {
        match reconnecting.await {
            Ok(()) => self.say_there(),
            Err(why) => self.say_away(&why),
        }
    }

    /// Until `reconnect` has succeeded.
    pub async fn restore<F: Future<Output = Result<(), String>>>(&self, reconnect: impl Fn() -> F) {
        let pause = self.pauses().first();
        sleep(pause).await;
        while let Err(why) = reconnect().await {
            tracing::debug!(redis = %self.endpoint, why, "Redis is still away");
            let pause = self.pauses().next();
            sleep(pause).await;
        }
        self.say_there();
    }

    fn pauses(&self) -> MutexGuard<'_, Pauses> {
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judge(&self, connection: &Arc<MultiplexedConnection>, broken: bool, why: &str) {
        let current = self.connection.load().as_ref().is_some_and(|now| Arc::ptr_eq(now, connection));
        // What becomes of a connection that was given up is no news.
        if current && (self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= FAILURES_MAX || broken) {
            self.open(why);
        }
    }

    fn failed(&self, why: &str) -> NoAnswer {
        self.failed_calls.fetch_add(1, Ordering::Relaxed);
        NoAnswer(why.to_owned())
    }

    fn say_away(&self, why: &str) {
        tracing::warn!(redis = %self.endpoint, why, "{}", self.words.away);
    }

    fn say_there(&self) {
        tracing::info!(redis = %self.endpoint, "{}", self.words.there);
    }
}

/// In the words of Redis or the operating system, which know nothing of passwords.
pub fn describe(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code}: {detail}"),
        _ => error.to_string(),
    }
}

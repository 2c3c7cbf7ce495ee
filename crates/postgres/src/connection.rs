use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, QueueMode, RecyclingMethod, Runtime,
};
use futures_util::future::BoxFuture;
use tidegate_domain::LedgerError;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::{Access, defect, describe, ledger_error, lost};
use crate::{OpenError, Options, Tls};

/// How much longer than the server's own deadline an answer may take to arrive.
pub const ANSWER_MARGIN: Duration = Duration::from_secs(1);

/// Run on a connection before it is used: a test's way to set the clock.
#[derive(Clone)]
pub struct SessionHook(pub Arc<Prepare>);

type Prepare = dyn for<'a> Fn(&'a Client) -> BoxFuture<'a, Result<(), tokio_postgres::Error>> + Send + Sync;

pub type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The process' connections.
#[derive(Debug, Clone)]
pub struct Connections {
    pool: Pool,
    session_hook: Option<SessionHook>,
    answer_within: Duration,
}

/// A statement's rows, before it is committed. Dropped, it has never happened.
#[derive(Debug)]
pub struct Uncommitted {
    pub rows: Vec<Row>,
    client: Option<Object>,
    answer_within: Duration,
}

/// Why a statement had no answer, before it is said what that means.
#[derive(Debug)]
pub enum CallError {
    Unsent(String),
    Unanswered,
    Failed(tokio_postgres::Error),
    /// Nothing happened, and nothing will: see [`LedgerError::Defect`].
    Defect(String),
}

impl Connections {
    pub fn new(options: &Options) -> Result<Self, OpenError> {
        let config = config(options)?;
        let manager_config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = match &options.tls {
            Tls::Off => Manager::from_config(config, NoTls, manager_config),
            Tls::On { roots } => Manager::from_config(config, tls(roots.as_deref())?, manager_config),
        };
        let settings = session_settings(options);
        let within = options.connect_timeout;
        let prepare = Hook::async_fn(move |client: &mut deadpool_postgres::ClientWrapper, _| {
            let settings = settings.clone();
            // The pool's own deadline ends before this: without another one, a server that falls silent after the
            // login would be waited for without end, and every call that takes this connection with it.
            Box::pin(async move {
                match timeout(within, client.batch_execute(&settings)).await {
                    Ok(result) => result.map_err(HookError::Backend),
                    Err(_) => Err(HookError::message("no answer in time after the login")),
                }
            })
        });
        let pool = Pool::builder(manager)
            .max_size(options.connections_max)
            // The one that was used last: what it needs is still at hand.
            .queue_mode(QueueMode::Lifo)
            .wait_timeout(Some(options.connection_wait))
            .create_timeout(Some(options.connect_timeout))
            .recycle_timeout(Some(options.connect_timeout))
            .runtime(Runtime::Tokio1)
            .post_create(prepare)
            .build();
        let pool = pool.map_err(|error| OpenError::Settings(error.to_string()))?;
        let answer_within = options.statement_timeout + ANSWER_MARGIN;
        Ok(Self { pool, session_hook: options.session_hook.clone(), answer_within })
    }

    pub async fn get(&self) -> Result<Object, CallError> {
        self.pool.get().await.map_err(|error| match error {
            // Without the pool's wrapping.
            PoolError::Backend(error) => CallError::Unsent(describe(&error)),
            error => CallError::Unsent(error.to_string()),
        })
    }

    /// One statement, its own transaction, one round trip.
    pub async fn call(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, CallError> {
        let (client, statement) = self.prepare(sql).await?;
        match timeout(self.answer_within, client.query(&statement, params)).await {
            Ok(result) => result.map_err(|error| CallError::of(error, sql, CallError::Failed)),
            Err(_) => Err(give_up(client, CallError::Unanswered)),
        }
    }

    /// One statement whose caller decides when he has seen its rows.
    pub async fn call_uncommitted(&self, sql: &str, params: Params<'_>) -> Result<Uncommitted, CallError> {
        let (client, statement) = self.prepare(sql).await?;
        // One after the other on the wire, without waiting in between.
        let both = async { tokio::join!(client.batch_execute("BEGIN"), client.query(&statement, params)) };
        match timeout(self.answer_within, both).await {
            Ok((Ok(()), Ok(rows))) => {
                Ok(Uncommitted { rows, client: Some(client), answer_within: self.answer_within })
            }
            Ok((Err(error), _) | (_, Err(error))) => {
                Err(give_up(client, CallError::of(error, sql, CallError::unsent)))
            }
            Err(_) => Err(give_up(client, CallError::Unsent("no answer in time".to_owned()))),
        }
    }

    async fn prepare(&self, sql: &str) -> Result<(Object, Statement), CallError> {
        let client = self.get().await?;
        let prepared = timeout(self.answer_within, async {
            if let Some(SessionHook(prepare)) = &self.session_hook {
                prepare(&client).await?;
            }
            client.prepare_cached(sql).await
        });
        match prepared.await {
            Ok(Ok(statement)) => Ok((client, statement)),
            Ok(Err(error)) => Err(CallError::of(error, sql, CallError::unsent)),
            Err(_) => Err(give_up(client, CallError::Unsent("no answer in time".to_owned()))),
        }
    }

    pub async fn read(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, LedgerError> {
        self.call(sql, params).await.map_err(|error| error.meaning(Access::Read))
    }

    pub async fn write(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, LedgerError> {
        self.call(sql, params).await.map_err(|error| error.meaning(Access::Write))
    }
}

impl Uncommitted {
    pub async fn commit(mut self) -> Result<Vec<Row>, CallError> {
        let Some(client) = self.client.take() else { return Err(CallError::Unanswered) };
        match timeout(self.answer_within, client.batch_execute("COMMIT")).await {
            Ok(Ok(())) => Ok(std::mem::take(&mut self.rows)),
            Ok(Err(error)) => Err(give_up(client, CallError::Failed(error))),
            Err(_) => Err(give_up(client, CallError::Unanswered)),
        }
    }

    /// It has not happened, and whoever asks next finds its rows unlocked. A dropped one's are, once the server has
    /// noticed.
    pub async fn take_back(mut self) {
        let Some(client) = self.client.take() else { return };
        if !matches!(timeout(self.answer_within, client.batch_execute("ROLLBACK")).await, Ok(Ok(()))) {
            drop(Object::take(client));
        }
    }
}

impl Drop for Uncommitted {
    fn drop(&mut self) {
        // Its transaction ends with its connection.
        self.client.take().map(Object::take);
    }
}

impl CallError {
    fn of(error: tokio_postgres::Error, sql: &str, otherwise: fn(tokio_postgres::Error) -> Self) -> Self {
        defect(&error, sql).map_or_else(|| otherwise(error), Self::Defect)
    }

    fn unsent(error: tokio_postgres::Error) -> Self {
        Self::Unsent(describe(&error))
    }

    pub fn meaning(self, access: Access) -> LedgerError {
        match self {
            Self::Unsent(said) => LedgerError::Unavailable(said),
            Self::Unanswered => lost(access, "no answer in time".to_owned()),
            Self::Failed(error) => ledger_error(&error, access),
            Self::Defect(said) => LedgerError::Defect(said),
        }
    }

    pub fn is_code(&self, code: &str) -> bool {
        matches!(self, Self::Failed(error) if crate::error::is_code(error, code))
    }
}

/// A connection that owes an answer is of no use to anybody else.
fn give_up(client: Object, error: CallError) -> CallError {
    drop(Object::take(client));
    error
}

/// An answer that is waited for outside of the pool. The driver's own deadline is for the TCP connection alone: a server
/// that accepts it and falls silent would be waited for without end.
pub async fn in_time<T, E>(
    within: Duration,
    answer: impl Future<Output = Result<T, E>>,
) -> Result<T, OpenError>
where
    OpenError: From<E>,
{
    let late = |_| LedgerError::Unavailable(format!("no answer in time ({within:?})"));
    Ok(timeout(within, answer).await.map_err(late)??)
}

pub fn config(options: &Options) -> Result<Config, OpenError> {
    let mut config: Config = options.url.parse().map_err(|error| OpenError::Settings(misread(&error)))?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(OpenError::Settings("the URL names no host".to_owned()));
    }
    config.connect_timeout(options.connect_timeout);
    config.keepalives(true).keepalives_idle(Duration::from_secs(10));
    config.tcp_user_timeout(options.statement_timeout + ANSWER_MARGIN);
    if config.get_application_name().is_none() {
        config.application_name("tidegate");
    }
    let mode = match options.tls {
        Tls::Off => tokio_postgres::config::SslMode::Disable,
        Tls::On { .. } => tokio_postgres::config::SslMode::Require,
    };
    config.ssl_mode(mode);
    Ok(config)
}

/// What is wrong with a URL, without any of its text: that may hold a password.
fn misread(error: &tokio_postgres::Error) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    // The only ones that repeat nothing of it.
    let option =
        cause.strip_prefix("invalid value for option ").map(|option| format!(": {option} makes no sense"));
    format!(
        "the URL is not of the form postgres://user:password@host:port/database{}",
        option.unwrap_or_default()
    )
}

/// Whether the URL can be used at all, without connecting to anything.
pub fn check_url(options: &Options) -> Result<(), OpenError> {
    config(options).map(drop)
}

/// Whether there is a root certificate, in the file or on this system.
pub fn check_roots(roots: Option<&std::path::Path>) -> Result<(), OpenError> {
    tls(roots).map(drop)
}

/// Plans are made for full tables, whatever they hold when the first statement comes: the line empties and fills
/// faster than anybody counts its rows. So rows are looked up one by one, through indexes; no other join makes sense.
pub fn session_settings(options: &Options) -> String {
    format!(
        "SET search_path TO tidegate; SET statement_timeout TO {}; SET lock_timeout TO {}; \
         SET enable_seqscan TO off; SET enable_hashjoin TO off; SET enable_mergejoin TO off; SET jit TO off; SET plan_cache_mode TO force_generic_plan; \
         SET default_transaction_isolation TO 'read committed'; SET client_min_messages TO warning; {}; {}",
        options.statement_timeout.as_millis(),
        options.lock_timeout.as_millis(),
        patience(options.statement_timeout),
        commits(options.allow_unsafe_server),
    )
}

/// A process that stands still, or whose network does, keeps its locks no longer than a statement may take.
fn patience(statement_timeout: Duration) -> String {
    let seconds = statement_timeout.as_secs().max(1);
    format!(
        "SET idle_in_transaction_session_timeout TO {0}; SET tcp_user_timeout TO {0}; \
         SET tcp_keepalives_idle TO {seconds}; SET tcp_keepalives_interval TO {seconds}; \
         SET tcp_keepalives_count TO 3",
        statement_timeout.as_millis(),
    )
}

/// What is answered is on disk, whatever the server's, the database's or the role's default is. A stronger one stays, and
/// one that was weakened on purpose.
fn commits(allow_unsafe: bool) -> String {
    let kept = if allow_unsafe { "'on', 'remote_apply', 'off'" } else { "'on', 'remote_apply'" };
    format!(
        "SELECT set_config('synchronous_commit', 'on', false) \
         WHERE current_setting('synchronous_commit') NOT IN ({kept})"
    )
}

pub fn tls(roots: Option<&std::path::Path>) -> Result<MakeRustlsConnect, OpenError> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    let wrong = |error: String| OpenError::Settings(error);
    let mut store = rustls::RootCertStore::empty();
    match roots {
        Some(path) => {
            let certificates = CertificateDer::pem_file_iter(path)
                .map_err(|error| wrong(format!("{}: {error}", path.display())))?;
            for certificate in certificates {
                let certificate =
                    certificate.map_err(|error| wrong(format!("{}: {error}", path.display())))?;
                store.add(certificate).map_err(|error| wrong(format!("{}: {error}", path.display())))?;
            }
        }
        None => {
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    match roots {
        _ if !store.is_empty() => {}
        Some(path) => return Err(wrong(format!("{}: holds no certificates in PEM", path.display()))),
        None => return Err(wrong("the system trusts no certificates".to_owned())),
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(error.to_string()))?
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

impl fmt::Debug for SessionHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionHook")
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// AuthenticationOk, then ReadyForQuery.
    const WELCOME: [u8; 15] = [b'R', 0, 0, 0, 8, 0, 0, 0, 0, b'Z', 0, 0, 0, 5, b'I'];
    /// Ends a test that hangs.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// The settings for a server that lets everybody in and then says nothing.
    async fn silent_after_login() -> Options {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let welcome = async |mut stream: TcpStream| {
            let _ = stream.read(&mut [0; 1_024]).await;
            let _ = stream.write_all(&WELCOME).await;
            std::future::pending::<()>().await;
        };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(welcome(stream));
            }
        });
        Options {
            connect_timeout: Duration::from_millis(500),
            statement_timeout: Duration::from_millis(500),
            ..Options::new(format!("postgres://postgres@{address}/postgres"))
        }
    }

    #[tokio::test]
    async fn a_connection_that_falls_silent_after_the_login_is_given_up() {
        let connections = Connections::new(&silent_after_login().await).unwrap();
        let got = timeout(PATIENCE, connections.get()).await.expect("an answer");
        assert!(
            matches!(&got, Err(CallError::Unsent(said)) if said.contains("no answer in time")),
            "{got:?}"
        );
    }

    #[tokio::test]
    async fn a_start_on_a_server_that_falls_silent_after_the_login_is_given_up() {
        let opened = timeout(PATIENCE, crate::Postgres::open(silent_after_login().await)).await;
        let error = opened.expect("an answer").expect_err("no ledger").to_string();
        assert!(error.contains("no answer in time"), "{error}");
    }
}

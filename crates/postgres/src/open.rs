use std::sync::Arc;

use tidegate_domain::{Durability, Health, LedgerError, MessageId, Timestamp};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

use crate::admit::Admissions;
use crate::batch::Batcher;
use crate::connection::{self, Connections, Params, in_time};
use crate::hand::{Ending, Extensions};
use crate::reserve::Reservations;
use crate::retire::Pause;
use crate::settle::Settlements;
use crate::slot_configs::SlotConfigs;
use crate::transit::Beginnings;
use crate::wakes::Wakes;
use crate::{OpenError, Options, Tls, migrations, sweep, tidy, wakes};

/// PostgreSQL 15, the first that the tests know.
const VERSION_MIN: i32 = 150_000;

/// A ledger in a PostgreSQL database, shared with every other process that has opened it.
#[derive(Debug)]
pub struct Postgres {
    pub(crate) core: Arc<Core>,
    pub(crate) admissions: Batcher<Admissions>,
    pub(crate) settlements: Batcher<Settlements>,
    pub(crate) extensions: Batcher<Extensions>,
    pub(crate) beginnings: Batcher<Beginnings>,
    pub(crate) acks: Batcher<Ending>,
    pub(crate) cancels: Batcher<Ending>,
    pub(crate) reservations: Batcher<Reservations>,
    pub(crate) durability: Durability,
    pub(crate) health: watch::Receiver<Health>,
    background: Vec<JoinHandle<()>>,
}

/// What every operation needs.
#[derive(Debug)]
pub struct Core {
    pub connections: Connections,
    pub options: Options,
    pub wakes: Arc<Wakes>,
    pub slot_configs: SlotConfigs,
    pub retiring: Pause,
    pub salt: u32,
}

impl Postgres {
    /// Checks the server, brings the schema up to date, and starts what runs in the background.
    pub async fn open(options: Options) -> Result<Self, OpenError> {
        let mut client = connect(&options).await?;
        let answer_within = options.statement_timeout + connection::ANSWER_MARGIN;
        let durability = in_time(answer_within, check_server(&client, &options)).await?;
        migrations::migrate_on(&mut client, &options).await?;
        client.batch_execute(&connection::session_settings(&options)).await?;
        migrations::make_first_partitions(&mut client, &options).await?;
        let row = client.query_one("SELECT salt, nextval('life_seq') FROM meta", &[]).await?;
        let salt = u32::try_from(row.get::<_, i32>(0)).unwrap_or_default();
        let life: i64 = row.get(1);
        let connections = Connections::new(&options)?;
        let wakes = Arc::new(Wakes::new(life));
        let (slot_configs, retiring) = Default::default();
        let core = Arc::new(Core { connections, options, wakes, slot_configs, retiring, salt });
        core.ask_the_time().await?;
        let (health_sender, health) = watch::channel(Health::Ready);
        let background = vec![
            tokio::spawn(wakes::listen(core.clone())),
            tokio::spawn(wakes::announce(core.clone())),
            tokio::spawn(sweep::run(core.clone(), health_sender)),
            tokio::spawn(tidy::run(core.clone())),
        ];
        let (intake, batch) = (core.options.intake_max, core.options.batch_max);
        let ending = |acked| Arc::new(Ending { core: core.clone(), acked });
        Ok(Self {
            admissions: Batcher::start(Arc::new(Admissions::new(core.clone())), intake, batch),
            settlements: Batcher::start(Arc::new(Settlements(core.clone())), intake, batch),
            extensions: Batcher::start(Arc::new(Extensions(core.clone())), intake, batch),
            beginnings: Batcher::start(Arc::new(Beginnings(core.clone())), intake, batch),
            acks: Batcher::start(ending(true), intake, batch),
            cancels: Batcher::start(ending(false), intake, batch),
            reservations: Batcher::start(Arc::new(Reservations(core.clone())), intake, batch),
            core,
            durability,
            health,
            background,
        })
    }
}

impl Core {
    pub fn id(&self, admitted_at: i64, seq: i64) -> MessageId {
        MessageId::new(Timestamp::from_millis(admitted_at), seq.unsigned_abs(), self.salt)
    }

    pub async fn write(
        &self,
        sql: &str,
        params: Params<'_>,
    ) -> Result<Vec<tokio_postgres::Row>, LedgerError> {
        self.connections.write(sql, params).await
    }

    pub async fn read(&self, sql: &str, params: Params<'_>) -> Result<Vec<tokio_postgres::Row>, LedgerError> {
        self.connections.read(sql, params).await
    }

    /// Number and time of an id, if it is one of this ledger's.
    pub fn parts(&self, id: MessageId) -> (i64, i64) {
        let seq = if id.salt() == self.salt { id.seq().cast_signed() } else { -1 };
        (seq, id.millis().cast_signed())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.background.iter().for_each(JoinHandle::abort);
        self.core.wakes.close();
    }
}

/// A connection of its own, beside the pool.
pub async fn connect(options: &Options) -> Result<Client, OpenError> {
    let config = connection::config(options)?;
    let within = options.connect_timeout;
    match &options.tls {
        Tls::Off => {
            let (client, connection) = in_time(within, config.connect(NoTls)).await?;
            tokio::spawn(connection);
            Ok(client)
        }
        Tls::On { roots } => {
            let tls = connection::tls(roots.as_deref())?;
            let (client, connection) = in_time(within, config.connect(tls)).await?;
            tokio::spawn(connection);
            Ok(client)
        }
    }
}

pub async fn check_server(client: &Client, options: &Options) -> Result<Durability, OpenError> {
    let show = async |name: &str| -> Result<String, OpenError> {
        let row = client.query_one("SELECT current_setting($1)", &[&name]).await?;
        Ok(row.get(0))
    };
    if show("server_version_num").await?.parse().unwrap_or(0) < VERSION_MIN {
        return Err(OpenError::TooOld(show("server_version").await?));
    }
    let mut durability = Durability::Fsync;
    for name in ["fsync", "full_page_writes"] {
        if show(name).await? == "off" {
            if !options.allow_unsafe_server {
                return Err(OpenError::Unsafe(name));
            }
            durability = Durability::OsBuffer;
            tracing::warn!("{name} is off on the server: a crash of its machine loses acknowledged messages");
        }
    }
    if show("synchronous_commit").await? == "off" {
        if options.allow_unsafe_server {
            durability = Durability::OsBuffer;
            tracing::warn!("synchronous_commit is off: a crash of the server loses acknowledged messages");
        } else {
            tracing::warn!("synchronous_commit is off on the server; this gateway turns it on for itself");
        }
    }
    Ok(durability)
}

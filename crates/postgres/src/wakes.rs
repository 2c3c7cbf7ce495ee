use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tidegate_domain::{LedgerError, QueueName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep};
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls};

use crate::claims::{ASKS_MAX, Ask, Line};
use crate::connection::in_time;
use crate::open::Core;
use crate::pick_up::Stirs;
use crate::{OpenError, Tls, connection};

const CHANNEL: &str = "tidegate";
/// Instead of names: look at every queue.
const ALL: &str = "*";
/// A notification carries no more than this, or stands for all.
const NAMES_MAX: usize = 60;
const RECONNECT_AFTER: Duration = Duration::from_millis(500);

/// Who waits for messages here, and who is to be told elsewhere.
#[derive(Debug)]
pub struct Wakes {
    /// This process among all, so that it need not listen to itself.
    life: i64,
    lines: Mutex<HashMap<QueueName, Door>>,
    touched: Mutex<BTreeSet<String>>,
    to_announce: Notify,
    pub stirs: Stirs,
}

#[derive(Debug, Clone)]
struct Door {
    asks: mpsc::Sender<Ask>,
    woken: Arc<Notify>,
}

impl Wakes {
    pub fn new(life: i64) -> Self {
        Self {
            life,
            lines: Mutex::default(),
            touched: Mutex::default(),
            to_announce: Notify::new(),
            stirs: Stirs::default(),
        }
    }

    /// Puts an ask into its queue's line, which begins with the first.
    pub fn ask(&self, core: &Arc<Core>, queue: &QueueName, ask: Ask) -> Result<(), LedgerError> {
        let mut lines = self.lines();
        // A line that has panicked is no reason to refuse whoever comes next.
        if lines.get(queue).is_some_and(|door| door.asks.is_closed()) {
            lines.remove(queue);
        }
        let door = lines.entry(queue.clone()).or_insert_with(|| {
            let (asks, incoming) = mpsc::channel(ASKS_MAX);
            let woken = Arc::new(Notify::new());
            tokio::spawn(Line::new(core.clone(), queue.clone()).run(incoming, woken.clone()));
            Door { asks, woken }
        });
        door.asks.try_send(ask).map_err(|refused| match refused {
            TrySendError::Full(_) => LedgerError::Overloaded,
            TrySendError::Closed(_) => LedgerError::Unavailable("the ledger is closed".to_owned()),
        })
    }

    /// Ends an idle line, unless somebody has come meanwhile.
    pub fn retire(&self, queue: &QueueName, incoming: &mut mpsc::Receiver<Ask>) -> bool {
        let mut lines = self.lines();
        let idle = incoming.is_empty();
        if idle {
            lines.remove(queue);
        }
        idle
    }

    /// There may be something to take from this queue.
    pub fn wake(&self, queue: &QueueName) {
        self.wake_here(queue.as_str());
        self.announce(queue.as_str());
    }

    pub fn wake_all(&self) {
        self.wake_here(ALL);
        self.announce(ALL);
    }

    pub fn close(&self) {
        self.lines().clear();
    }

    fn wake_here(&self, name: &str) {
        let lines = self.lines();
        if name == ALL {
            lines.values().for_each(|door| door.woken.notify_one());
            self.stirs.stir_all();
        } else if let Ok(queue) = QueueName::new(name) {
            if let Some(door) = lines.get(&queue) {
                door.woken.notify_one();
            }
            self.stirs.stir(&queue);
        }
    }

    fn announce(&self, name: &str) {
        let new = self.touched().insert(name.to_owned());
        if new {
            self.to_announce.notify_one();
        }
    }

    /// `life:name,name`.
    fn payload(&self) -> Option<String> {
        let touched = std::mem::take(&mut *self.touched());
        if touched.is_empty() {
            return None;
        }
        let all = touched.contains(ALL) || touched.len() > NAMES_MAX;
        let names = if all { ALL.to_owned() } else { touched.into_iter().collect::<Vec<_>>().join(",") };
        Some(format!("{}:{names}", self.life))
    }

    fn heard(&self, payload: &str) {
        let Some((life, names)) = payload.split_once(':') else { return };
        if life != self.life.to_string() {
            names.split(',').for_each(|name| self.wake_here(name));
        }
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<QueueName, Door>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touched(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.touched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the other processes, at most once in a while: a notification is a commit of its own, and all of them take
/// turns on one lock of the server.
pub async fn announce(core: Arc<Core>) {
    loop {
        core.wakes.to_announce.notified().await;
        let Some(payload) = core.wakes.payload() else { continue };
        // Lost with its connection, it is no loss: whoever waits looks by himself, too.
        let _ = core.write("SELECT pg_notify($1, $2)", &[&CHANNEL, &payload]).await;
        sleep(core.options.notify_every).await;
    }
}

/// Hears the other processes, on a connection of its own, for ever.
pub async fn listen(core: Arc<Core>) {
    loop {
        let begun = Instant::now();
        if let Err(error) = listen_once(&core).await {
            tracing::warn!(%error, "notifications from PostgreSQL are away; looking by ourselves");
        }
        // What was said meanwhile nobody heard.
        core.wakes.wake_here(ALL);
        if begun.elapsed() < RECONNECT_AFTER {
            sleep(RECONNECT_AFTER).await;
        }
    }
}

async fn listen_once(core: &Core) -> Result<(), OpenError> {
    let config = connection::config(&core.options)?;
    let within = core.options.connect_timeout;
    match &core.options.tls {
        Tls::Off => {
            let (client, connection) = in_time(within, config.connect(NoTls)).await?;
            hear(core, client, connection).await
        }
        Tls::On { roots } => {
            let tls = connection::tls(roots.as_deref())?;
            let (client, connection) = in_time(within, config.connect(tls)).await?;
            hear(core, client, connection).await
        }
    }
}

async fn hear<S, T>(core: &Core, client: Client, mut connection: Connection<S, T>) -> Result<(), OpenError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut messages = stream::poll_fn(move |cx| connection.poll_message(cx));
    let sql = format!("LISTEN {CHANNEL}");
    let listening = client.batch_execute(&sql);
    tokio::pin!(listening);
    let mut is_listening = false;
    loop {
        tokio::select! {
            result = &mut listening, if !is_listening => {
                result?;
                is_listening = true;
                core.wakes.wake_here(ALL);
            }
            message = messages.next() => match message {
                Some(Ok(AsyncMessage::Notification(told))) => core.wakes.heard(told.payload()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
                None => return Ok(()),
            },
        }
    }
}

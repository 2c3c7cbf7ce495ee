mod keeper;
mod pauses;

use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::BusHealth;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use self::keeper::keep;
use crate::endpoint::Endpoint;
use crate::error::{Fault, OpenError};
use crate::session::Session;
use crate::topology::Topology;
use crate::wire::Wire;

/// For what takes a few milliseconds per queue. A broker that stops answering meanwhile is found out by its heartbeat.
const DECLARED_WITHIN: Duration = Duration::from_secs(30);

/// A connection that is made again whenever it is lost, until the link is dropped.
#[derive(Debug)]
pub struct Link {
    shared: Arc<Shared>,
    keeper: AbortHandle,
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Publishing,
    Receiving,
}

#[derive(Debug, Clone)]
pub struct Terms {
    pub endpoint: Endpoint,
    pub roots_pem: Option<String>,
    pub topology: Arc<Topology>,
    pub connect_timeout: Duration,
    pub probe_timeout: Duration,
}

#[derive(Debug)]
struct Shared {
    terms: Terms,
    purpose: Purpose,
    state: watch::Sender<State>,
    undeclared: Notify,
}

#[derive(Debug, Clone)]
pub enum State {
    /// It has not been tried yet.
    New,
    Away(String),
    /// Connected, but what is published is not read: the broker is low on something.
    Blocked(String),
    Ready(Arc<Session>),
}

impl Link {
    /// Returns when the broker is ready, or is known to be away.
    pub async fn open(terms: Terms, purpose: Purpose) -> Result<Self, OpenError> {
        let within = terms.connect_timeout;
        let shared = Arc::new(Shared {
            terms,
            purpose,
            state: watch::Sender::new(State::New),
            undeclared: Notify::new(),
        });
        let first = match shared.establish().await {
            Ok(session) => Some(session),
            Err(Fault::Final(error)) => return Err(error),
            Err(Fault::Away(why)) => {
                shared.set_away(&why);
                None
            }
        };
        let keeper = tokio::spawn(keep(shared.clone(), first)).abort_handle();
        let link = Self { shared, keeper };
        let _ = timeout(within, link.state().wait_for(|state| !matches!(state, State::New))).await;
        Ok(link)
    }

    pub fn terms(&self) -> &Terms {
        &self.shared.terms
    }

    pub fn state(&self) -> watch::Receiver<State> {
        self.shared.state.subscribe()
    }

    /// Or why there is none.
    pub fn session(&self) -> Result<Arc<Session>, String> {
        match &*self.shared.state.borrow() {
            State::Ready(session) => Ok(session.clone()),
            state => Err(self.reason(state).unwrap_or_default()),
        }
    }

    pub fn health(&self) -> BusHealth {
        self.reason(&self.shared.state.borrow()).map_or(BusHealth::Ready, BusHealth::Away)
    }

    /// Something that should be there is not: it is declared anew.
    pub fn declare(&self) {
        self.shared.undeclared.notify_one();
    }

    fn reason(&self, state: &State) -> Option<String> {
        let at = &self.shared.terms.endpoint;
        match state {
            State::Ready(_) => None,
            State::New => Some(format!("RabbitMQ at {at} has not answered yet")),
            State::Away(why) => Some(format!("RabbitMQ at {at} is away: {why}")),
            State::Blocked(why) => Some(format!("RabbitMQ at {at} has blocked what publishes: {why}")),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Shared {
    async fn establish(&self) -> Result<Arc<Session>, Fault> {
        let Terms { endpoint, roots_pem, topology, connect_timeout, .. } = &self.terms;
        let wire = Wire::dial(endpoint, roots_pem.clone(), *connect_timeout).await?;
        let session = Arc::new(Session::new(wire));
        match timeout(DECLARED_WITHIN, topology.declare(session.connection())).await {
            Ok(Ok(())) => Ok(session),
            Ok(Err(error)) => Err(Fault::of_declaration(&error, endpoint)),
            Err(_) => {
                session.cut();
                Err(Fault::Away("it does not answer in time".to_owned()))
            }
        }
    }

    /// Said once, and again when it is for another reason.
    fn set_away(&self, why: &str) {
        let before = self.state.send_replace(State::Away(why.to_owned()));
        if !matches!(before, State::Away(before) if before == why) {
            tracing::warn!(rabbitmq = %self.terms.endpoint, why, "RabbitMQ is away");
        }
    }

    fn set_blocked(&self, why: &str) {
        self.state.send_replace(State::Blocked(why.to_owned()));
        tracing::warn!(rabbitmq = %self.terms.endpoint, why, "RabbitMQ has blocked what publishes");
    }

    fn set_ready(&self, session: &Arc<Session>) {
        if !matches!(self.state.send_replace(State::Ready(session.clone())), State::Ready(_)) {
            tracing::info!(rabbitmq = %self.terms.endpoint, purpose = ?self.purpose, "RabbitMQ is there");
        }
    }
}

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::OptionFuture;
use lapin::Event;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use super::pauses::Pauses;
use super::{DECLARED_WITHIN, Purpose, Shared};
use crate::error::{Fault, describe};
use crate::session::Session;
use crate::topology::GONE_FOR;

/// The events tell of a loss; this is for one they don't tell of.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A broker that is low on memory says so to those alone who publish meanwhile.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Keeps a connection, for as long as the task is let live.
pub async fn keep(shared: Arc<Shared>, mut first: Option<Arc<Session>>) {
    let mut pauses = Pauses::default();
    loop {
        let session = match first.take() {
            Some(session) => Ok(session),
            None => shared.establish().await,
        };
        let why = match session {
            Ok(session) => {
                let begun = Instant::now();
                let why = attend(&shared, &session).await;
                session.cut();
                pauses.lasted(begun.elapsed());
                why
            }
            Err(fault) => fault.to_string(),
        };
        shared.set_away(&why);
        sleep(pauses.next()).await;
    }
}

/// Until the connection is no good any more. Returns why.
async fn attend(shared: &Shared, session: &Arc<Session>) -> String {
    let mut events = pin!(session.connection().events_listener());
    let (mut look, mut ask) = (interval(LOOK_EVERY), interval(PROBE_EVERY));
    ask.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let publishes = shared.purpose == Purpose::Publishing;
    let probe = || Box::pin(session.probe(&shared.terms.topology, shared.terms.probe_timeout));
    let mut probing = None;
    let (mut is_blocked, mut declare_at) = (false, None);
    if !publishes {
        shared.set_ready(session);
    }
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(Event::ConnectionBlocked(why)) => {
                    is_blocked = true;
                    probing = None;
                    shared.set_blocked(&why);
                }
                Some(Event::ConnectionUnblocked) => {
                    is_blocked = false;
                    probing = Some(probe());
                }
                // Of a channel, unless the connection has gone too.
                Some(Event::Error(error)) if !session.is_connected() => return describe(&error),
                None => return "the connection has ended".to_owned(),
                Some(_) => {}
            },
            Some(probed) = OptionFuture::from(probing.as_mut()) => {
                probing = None;
                match probed {
                    Ok(()) => shared.set_ready(session),
                    Err(why) => return why,
                }
            }
            _ = ask.tick(), if publishes && !is_blocked && probing.is_none() => probing = Some(probe()),
            () = shared.undeclared.notified(), if declare_at.is_none() => declare_at = Some(Instant::now() + GONE_FOR),
            Some(()) = OptionFuture::from(declare_at.map(sleep_until)), if !is_blocked => {
                declare_at = None;
                if let Err(fault) = declare(shared, session).await {
                    return fault.to_string();
                }
            }
            _ = look.tick() => if !session.is_connected() {
                return "the connection was lost".to_owned();
            }
        }
    }
}

async fn declare(shared: &Shared, session: &Session) -> Result<(), Fault> {
    let declaring = shared.terms.topology.declare(session.connection());
    match timeout(DECLARED_WITHIN, declaring).await {
        Ok(declared) => declared.map_err(|error| Fault::of_declaration(&error, &shared.terms.endpoint)),
        Err(_) => Err(Fault::Away("it does not answer in time".to_owned())),
    }
}

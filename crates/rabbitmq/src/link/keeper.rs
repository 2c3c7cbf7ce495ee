use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::OptionFuture;
use lapin::Event;
use tokio::time::{Instant, interval, sleep, timeout};

use super::pauses::Pauses;
use super::{DECLARED_WITHIN, Purpose, Shared};
use crate::error::{Fault, describe};
use crate::session::Session;

/// The events tell of a loss; this is for one they don't tell of.
const LOOK_EVERY: Duration = Duration::from_millis(500);

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
    let mut look = interval(LOOK_EVERY);
    let probe = || Box::pin(session.probe(&shared.terms.topology, shared.terms.probe_timeout));
    let mut probing = OptionFuture::from((shared.purpose == Purpose::Publishing).then(probe));
    let mut is_blocked = false;
    if shared.purpose == Purpose::Receiving {
        shared.set_ready(session);
    }
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(Event::ConnectionBlocked(why)) => {
                    is_blocked = true;
                    probing = None.into();
                    shared.set_blocked(&why);
                }
                Some(Event::ConnectionUnblocked) => {
                    is_blocked = false;
                    probing = Some(probe()).into();
                }
                // Of a channel, unless the connection has gone too.
                Some(Event::Error(error)) if !session.is_connected() => return describe(&error),
                None => return "the connection has ended".to_owned(),
                Some(_) => {}
            },
            Some(probed) = &mut probing => {
                probing = None.into();
                match probed {
                    Ok(()) => shared.set_ready(session),
                    Err(why) => return why,
                }
            }
            () = shared.suspected.notified(), if !is_blocked => probing = Some(probe()).into(),
            () = shared.undeclared.notified(), if !is_blocked => {
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

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream::{self, Stream};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use tidegate_edge::{ApiError, Sent};
use tokio::time::{Duration, Instant, timeout};

use super::{is_awaited, listen, recipient, sent_of, shown};
use crate::devices::{DeviceMessage, Listening, Ticket};
use crate::http::{Gateway, query};

/// Well below the silence after which proxies, and this server's own deadlines, give a connection up.
const HEARTBEAT: Duration = Duration::from_secs(10);
const SLICE: Duration = Duration::from_secs(1);

/// `GET /inbox/{recipient}/events`: server-sent events, one per message, until the device leaves or the gateway stops.
pub async fn events(
    State(gateway): State<Arc<Gateway>>,
    path: Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let mut fields = query::fields(request.uri());
    let recipient = recipient(&gateway, path, request.headers(), &mut fields)?;
    fields.finish()?;
    let sent = sent_of(&request);
    drop(request);
    let listening = listen(&gateway, &recipient)?;
    let body = Body::from_stream(stream(gateway, sent, listening));
    Ok(([(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")], body).into_response())
}

fn stream(
    gateway: Arc<Gateway>,
    sent: Sent,
    listening: Box<dyn Listening>,
) -> impl Stream<Item = Result<Bytes, std::convert::Infallible>> + Send {
    // The first beat goes out at once: a device knows that it is connected.
    let overdue = Instant::now().checked_sub(HEARTBEAT).unwrap_or_else(Instant::now);
    let begin = ((gateway, sent), listening, overdue, None::<Box<dyn Ticket>>);
    stream::unfold(begin, |((gateway, sent), mut listening, beat, writing)| async move {
        // The connection has taken the event before: it asks for the next.
        if let Some(ticket) = writing {
            sent.tell(move || ticket.written());
        }
        loop {
            if beat.elapsed() >= HEARTBEAT {
                let beat = Bytes::from_static(b": here\n\n");
                return Some((Ok(beat), ((gateway, sent), listening, Instant::now(), None)));
            }
            if gateway.is_draining() {
                return None;
            }
            match timeout(SLICE, listening.next()).await {
                Ok(Some(handover)) if is_awaited(&gateway, &handover).await => {
                    let state = ((gateway, sent), listening, Instant::now(), Some(handover.ticket));
                    return Some((Ok(event(&handover.message)), state));
                }
                Ok(Some(_ended)) => {}
                // Left behind: it comes back, and finds what it has not acked.
                Ok(None) => return None,
                Err(_elapsed) => {}
            }
        }
    })
}

/// JSON holds no line break of its own, so one `data` line is enough.
fn event(message: &DeviceMessage) -> Bytes {
    Bytes::from(format!("id: {}\nevent: message\ndata: {}\n\n", message.id, shown(message)))
}

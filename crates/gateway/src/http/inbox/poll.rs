use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};
use tidegate_domain::{BATCH_BYTES_MAX, LedgerError};
use tidegate_edge::{ApiError, Sent};
use tokio::time::{Duration, Instant, timeout};

use super::{is_awaited, listen, recipient, sent_of, shown};
use crate::devices::{Handover, Listening};
use crate::http::failure::from_ledger;
use crate::http::fields::Name;
use crate::http::{Gateway, answer, query};

const WAIT_SECONDS: Name = Name::new("waitSeconds", "wait_seconds");
const MAX: Name = Name::new("max", "max");
const MOST: u64 = 100;
const SLICE: Duration = Duration::from_secs(1);
/// How long a poll waits for the ledger to say what there is. Shorter than the time in which a device has to begin with what
/// it is offered.
const LOOK_WITHIN: Duration = Duration::from_secs(3);
/// An answer with more needs a place: most are far smaller, and devices are many.
const SMALL_BYTES: usize = 256 << 10;

/// `GET /inbox/{recipient}/messages?waitSeconds=`: what waits for the recipient, and with a wait, the first that comes.
pub async fn messages(
    State(gateway): State<Arc<Gateway>>,
    path: Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let mut fields = query::fields(request.uri());
    let recipient = recipient(&gateway, path, request.headers(), &mut fields)?;
    let wait_s = fields.count(WAIT_SECONDS, 0..=gateway.queue_settings.wait_seconds_max);
    let max = fields.count(MAX, 1..=MOST);
    fields.finish()?;
    let wait = Duration::from_secs(wait_s.flatten().unwrap_or(0));
    let max = usize::try_from(max.flatten().unwrap_or(MOST)).unwrap_or(1);
    let sent = sent_of(&request);
    drop(request);
    let mut listening = listen(&gateway, &recipient)?;
    let begun = Instant::now();
    let looked = looked(&gateway, &mut *listening, begun + LOOK_WITHIN).await;
    let (mut found, mut bytes) = (Vec::new(), 0);
    loop {
        // What is left goes back to the ledger, or stays in the inbox until it is acked: the next poll finds it.
        while found.len() < max && bytes < BATCH_BYTES_MAX {
            let Some(handover) = listening.try_next() else { break };
            if is_awaited(&gateway, &handover).await {
                bytes += handover.message.body.len();
                found.push(handover);
            }
        }
        let left = (begun + wait).saturating_duration_since(Instant::now());
        if !found.is_empty() || gateway.is_draining() {
            return show(&gateway, &sent, found, bytes).await;
        }
        if left.is_zero() {
            if !looked {
                let reason = "it did not say what waits for the recipient";
                return Err(from_ledger(LedgerError::Unavailable(reason.to_owned())));
            }
            return show(&gateway, &sent, found, bytes).await;
        }
        match timeout(left.min(SLICE), listening.next()).await {
            Ok(Some(handover)) if is_awaited(&gateway, &handover).await => {
                bytes += handover.message.body.len();
                found.push(handover);
            }
            Ok(Some(_ended)) => {}
            // Left behind: what it missed is found by the next poll.
            Ok(None) => return show(&gateway, &sent, found, bytes).await,
            Err(_elapsed) => {}
        }
    }
}

/// Whether it is known what waits. Then it is there.
async fn looked(gateway: &Gateway, listening: &mut dyn Listening, until: Instant) -> bool {
    while !gateway.is_draining() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        if let Ok(looked) = timeout(left.min(SLICE), listening.looked()).await {
            return looked;
        }
    }
    false
}

async fn show(
    gateway: &Gateway,
    sent: &Sent,
    found: Vec<Handover>,
    bytes: usize,
) -> Result<Response, ApiError> {
    let place = if bytes > SMALL_BYTES { Some(gateway.large_answers.begin().await?) } else { None };
    let messages: Vec<Value> = found.iter().map(|handover| shown(&handover.message)).collect();
    let response = answer::json(StatusCode::OK, &json!({ "messages": messages }))?;
    let response = match place {
        Some(place) => place.until_sent(response),
        None => response,
    };
    let tickets: Vec<_> = found.into_iter().map(|handover| handover.ticket).collect();
    Ok(sent.tell_of(response, move || tickets.into_iter().for_each(|ticket| ticket.written())))
}

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use tidegate_domain::{LedgerError, MessageId, Status};
use tidegate_edge::{ApiError, read_json};
use tokio::time::{Duration, Instant, timeout_at};

use super::{devices, recipient};
use crate::http::failure::{check_writable, from_ledger};
use crate::http::fields::Fields;
use crate::http::messages::{ack_and_answer, read_ack};
use crate::http::{Gateway, query};

/// For the settlement of messages that the device has, and that need no ack.
const SETTLED_WITHIN: Duration = Duration::from_secs(3);

/// `POST /inbox/{recipient}/ack`: `{id}` or `{ids}`, of this recipient's messages; others are unknown here.
pub async fn ack(
    State(gateway): State<Arc<Gateway>>,
    path: Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let mut asked = query::fields(request.uri());
    let recipient = recipient(&gateway, path, request.headers(), &mut asked)?;
    asked.finish()?;
    check_writable(gateway.ledger.health())?;
    let (ids, many) = read_ack(&gateway, Fields::new(read_json(request, &gateway.limits).await?))?;
    let mut known: Vec<Option<MessageId>> = Vec::with_capacity(ids.len());
    let until = Instant::now() + SETTLED_WITHIN;
    for id in &ids {
        let record = gateway.ledger.message(*id).await.map_err(from_ledger)?;
        let record = record.filter(|record| record.recipient.as_ref() == Some(&recipient));
        // Read is delivered, a moment before the ledger knows it. The device may be quicker than that.
        if record.as_ref().is_some_and(|record| record.status == Status::Pending && !record.ack_required) {
            let settled = timeout_at(until, devices(&gateway)?.until_settled(*id)).await;
            let reason = "it did not take the delivery of a message in time";
            settled.map_err(|_elapsed| from_ledger(LedgerError::Unavailable(reason.to_owned())))?;
        }
        known.push(record.map(|record| record.id));
    }
    let answered = ack_and_answer(&gateway, &ids, &known, many).await?;
    devices(&gateway)?.acked(&known.into_iter().flatten().collect::<Vec<_>>());
    Ok(answered)
}

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use tidegate_domain::MessageId;
use tidegate_edge::{ApiError, read_json};

use super::{devices, recipient};
use crate::http::failure::{check_writable, from_ledger};
use crate::http::fields::Fields;
use crate::http::messages::{ack_and_answer, read_ack};
use crate::http::{Gateway, query};

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
    for id in &ids {
        let record = gateway.ledger.message(*id).await.map_err(from_ledger)?;
        known.push(
            record.filter(|record| record.recipient.as_ref() == Some(&recipient)).map(|record| record.id),
        );
    }
    let answered = ack_and_answer(&gateway, &ids, &known, many).await?;
    devices(&gateway)?.acked(&known.into_iter().flatten().collect::<Vec<_>>());
    Ok(answered)
}

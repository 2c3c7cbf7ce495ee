//! `/api/v1/dead-letters`: messages that were given up, until somebody requeues or removes them.

mod requeue;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use http::StatusCode;
use serde::Serialize;
use tidegate_domain::{BATCH_BYTES_MAX, MessageId, Page, Status};
use tidegate_edge::{ApiError, Audit, Principal};

use super::answer::json;
use super::failure::{check_admin, check_writable, from_ledger};
use super::messages::{
    DamagedAnswer, MessageAnswer, answer, cursor, damaged, message_id, page_size, read_filter,
};
use super::{Gateway, query};

pub fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/api/v1/dead-letters", get(list))
        .route("/api/v1/dead-letters/requeue", post(requeue::many))
        .route("/api/v1/dead-letters/{id}", get(show).delete(delete))
        .route("/api/v1/dead-letters/{id}/requeue", post(requeue::one))
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed<'a> {
    dead_letters: Vec<MessageAnswer<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    damaged: Vec<DamagedAnswer<'a>>,
    next: Option<String>,
}

/// `GET /api/v1/dead-letters?queue=&recipient=&user=&priority=&from=&to=&limit=&cursor=`
async fn list(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    request: Request,
) -> Result<Response, ApiError> {
    check(&principal)?;
    let mut fields = query::fields(request.uri());
    let (filter, limit, after) = (read_filter(&mut fields), page_size(&mut fields), cursor(&mut fields));
    fields.finish()?;
    let (Some(mut filter), Some(max), Some(after)) = (filter, limit, after) else {
        return Err(ApiError::internal("a field without a value and without a fault"));
    };
    filter.status = Some(Status::Dead);
    let place = gateway.large_answers.begin().await?;
    let page = Page { max, body_bytes_max: Some(BATCH_BYTES_MAX), after };
    let listing = gateway.queues.list(filter, page).await.map_err(from_ledger)?;
    let dead_letters = listing.messages.iter().map(|record| answer(record, &principal)).collect();
    let listed =
        Listed { dead_letters, damaged: damaged(&listing), next: listing.next.map(|id| id.to_string()) };
    Ok(place.until_sent(json(StatusCode::OK, &listed)?))
}

/// `GET /api/v1/dead-letters/{id}`
async fn show(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    check(&principal)?;
    let id = message_id(&id)?;
    match gateway.ledger.message(id).await.map_err(from_ledger)? {
        Some(record) if record.status == Status::Dead => json(StatusCode::OK, &answer(&record, &principal)),
        _ => Err(not_dead(id)),
    }
}

/// `DELETE /api/v1/dead-letters/{id}`: for good.
async fn delete(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    audit: Audit,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    check(&principal)?;
    let id = message_id(&id)?;
    check_writable(gateway.ledger.health())?;
    let deleted = gateway.queues.delete_dead(vec![id]).await.map_err(from_ledger)?;
    if deleted.first() != Some(&true) {
        return Err(not_dead(id));
    }
    audit.record("dead letter removed", id);
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn check(principal: &Principal) -> Result<(), ApiError> {
    check_admin(principal, "dead letters are looked after by")
}

fn not_dead(id: MessageId) -> ApiError {
    ApiError::not_found("unknown_dead_letter", format!("there is no dead letter {id}"))
}

//! `/api/v1/messages`: messages to be pushed out, and what became of them.

mod ack;
mod cause;
mod list;
mod post;
mod record;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use http::StatusCode;
use tidegate_domain::{Cancelled, MessageId};
use tidegate_edge::{ApiError, Audit, FieldError, Principal};

use super::Gateway;
use super::answer::json;
use super::failure::{check_writable, from_ledger};

pub use self::ack::{IDS, ack_and_answer, read_ack, read_ids};
pub use self::list::{cursor, page_size, read_filter};
pub use self::record::{DamagedAnswer, MessageAnswer, answer, damaged};

pub fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/api/v1/messages", get(list::list).post(post::send))
        .route("/api/v1/messages/batch", post(post::send_many))
        .route("/api/v1/messages/{id}", get(show).delete(cancel))
        .route("/api/v1/ack", post(ack::ack))
}

/// `GET /api/v1/messages/{id}`: everything the ledger knows about a message.
async fn show(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let id = message_id(&id)?;
    match gateway.ledger.message(id).await.map_err(from_ledger)? {
        Some(record) => json(StatusCode::OK, &answer(&record, &principal)),
        None => Err(unknown(id)),
    }
}

/// `DELETE /api/v1/messages/{id}`: takes back a message that still waits.
async fn cancel(
    State(gateway): State<Arc<Gateway>>,
    _principal: Principal,
    audit: Audit,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let id = message_id(&id)?;
    check_writable(gateway.ledger.health())?;
    let cancelled = gateway.queues.cancel(vec![id]).await.map_err(from_ledger)?;
    let conflict = |code, message: &str| ApiError::new(StatusCode::CONFLICT, code, message);
    match cancelled.first() {
        Some(Cancelled::Cancelled) => {
            audit.record("message cancelled", id);
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        Some(Cancelled::UnderWay) => {
            Err(conflict("under_way", "the message is being sent; try again when its attempt has ended"))
        }
        Some(Cancelled::Sent) => {
            Err(conflict("sent", "the message has been sent, and the recipient's ack is awaited"))
        }
        Some(Cancelled::Ended) => {
            Err(conflict("ended", "the message has been delivered, or has ended otherwise"))
        }
        Some(Cancelled::Unknown) | None => Err(unknown(id)),
    }
}

pub fn message_id(text: &str) -> Result<MessageId, ApiError> {
    text.parse().map_err(|wrong: tidegate_domain::InvalidName| {
        ApiError::invalid_fields(vec![FieldError::new("id", wrong.0)])
    })
}

pub fn unknown(id: MessageId) -> ApiError {
    ApiError::not_found("unknown_message", format!("there is no message {id}"))
}

//! `/queue/*`: queues that producers push to and consumers pull from, one per consumer group.

mod keep;
mod pop;
mod push;
mod push_many;
mod receipt;
mod settle;
mod view;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use serde::Serialize;
use tidegate_domain::QueueName;
use tidegate_edge::ApiError;

use super::Gateway;
use super::answer::get_only;
use super::fields::{Fields, Name};

const CONSUMER_GROUP: Name = Name::new("consumerGroup", "consumer_group");

/// What a producer and a consumer get to see of a message.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MessageResponse<'a> {
    id: String,
    content: &'a str,
    created_at: String,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    reserved: Option<ReservedResponse>,
}

/// And of its lease, in groups that reserve.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReservedResponse {
    receipt: String,
    attempt: u32,
    lease_until: String,
}

pub fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/queue/push", post(push::push))
        .route("/queue/batch/push", post(push_many::push))
        .route("/queue/pop", get_only(pop::pop))
        .route("/queue/view", get(view::view))
        .route("/queue/ack", post(settle::ack))
        .route("/queue/nack", post(settle::nack))
        .route("/queue/extend", post(settle::extend))
        .route("/queue/purge", post(keep::purge))
        .route("/queue/pause", post(keep::pause))
        .route("/queue/resume", post(keep::resume))
}

/// A consumer group is the name of a queue.
fn group(fields: &mut Fields) -> Option<QueueName> {
    fields.parsed(CONSUMER_GROUP, QueueName::new)
}

fn no_value() -> ApiError {
    ApiError::internal("a field without a value and without a fault")
}

#[cfg(test)]
mod tests;

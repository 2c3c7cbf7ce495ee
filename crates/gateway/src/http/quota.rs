use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use tidegate_domain::limits::Quota;
use tidegate_domain::{Timestamp, UserId};
use tidegate_edge::{ApiError, FieldError, Principal, Role, read_json};

use super::Gateway;
use super::answer::{iso, json, put_durability};
use super::failure::{check_writable, from_ledger};
use super::fields::{Fields, RATE_LIMIT, TIME_WINDOW, USER_ID};

const MINUTE_MS: u64 = 60_000;
const LIMIT_MAX: u32 = 1_000_000_000;
/// A year.
const WINDOW_MINUTES_MAX: u32 = 525_600;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct QuotaAnswer<'a> {
    user_id: &'a str,
    rate_limit: u32,
    /// Whole minutes.
    time_window: u64,
    current_count: u32,
    remaining: u32,
    last_refresh_time: String,
}

/// `POST /api/config`: stores a user's quota; the count begins at zero.
///
/// ADMIN only: whoever may lift a limit is not held by it. Sending needs no more than a principal.
pub async fn put(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    request: Request,
) -> Result<Response, ApiError> {
    if principal.role != Role::Admin {
        let message = "quotas are configured by principals with the role ADMIN";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden", message));
    }
    check_writable(gateway.ledger.health())?;
    let mut fields = Fields::new(read_json(request, &gateway.limits).await?);
    let user = fields.user_id(USER_ID);
    let limit = fields.whole(RATE_LIMIT, 1..=LIMIT_MAX);
    let minutes = fields.whole(TIME_WINDOW, 1..=WINDOW_MINUTES_MAX);
    fields.finish()?;
    let (Some(user), Some(limit), Some(minutes)) = (user, limit, minutes) else {
        return Err(ApiError::internal("a field without a value and without a fault"));
    };
    let window_ms = u64::from(minutes) * MINUTE_MS;
    let quota = gateway.ledger.put_quota(user.clone(), limit, window_ms).await.map_err(from_ledger)?;
    let mut response = json(StatusCode::OK, &answer(&user, &quota, quota.since))?;
    put_durability(response.headers_mut(), gateway.ledger.durability());
    Ok(response)
}

/// `GET /api/config/{userId}`: the quota as it stands now. Looking does not open a window.
pub async fn show(
    State(gateway): State<Arc<Gateway>>,
    _principal: Principal,
    Path(user): Path<String>,
) -> Result<Response, ApiError> {
    let user = UserId::new(&user)
        .map_err(|wrong| ApiError::invalid_fields(vec![FieldError::new("userId", wrong.0)]))?;
    match gateway.ledger.quota(user.clone()).await.map_err(from_ledger)? {
        Some(quota) => json(StatusCode::OK, &answer(&user, &quota, gateway.clock.now())),
        None => Err(unknown_user(&user)),
    }
}

pub fn unknown_user(user: &UserId) -> ApiError {
    let message = format!("no configuration exists for user {user}; create one with POST /api/config");
    ApiError::not_found("unknown_user", message)
}

fn answer<'a>(user: &'a UserId, quota: &Quota, now: Timestamp) -> QuotaAnswer<'a> {
    let remaining = quota.remaining(now);
    QuotaAnswer {
        user_id: user.as_str(),
        rate_limit: quota.limit,
        time_window: quota.window_ms / MINUTE_MS,
        // Of the window that a send would be counted in now: one that has ended holds nothing any more.
        current_count: quota.limit.saturating_sub(remaining),
        remaining,
        last_refresh_time: iso(quota.since),
    }
}

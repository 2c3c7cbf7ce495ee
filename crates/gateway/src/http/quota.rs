use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Serialize;
use tidegate_domain::limits::{Quota, QuotaRule};
use tidegate_domain::{Timestamp, UserId};
use tidegate_edge::{ApiError, Audit, FieldError, Principal, read_json};

use super::answer::{iso, json, put_durability};
use super::failure::{check_admin, check_writable, from_ledger};
use super::fields::{Fields, Name, RATE_LIMIT, TIME_WINDOW, USER_ID};
use super::{Gateway, query};

const MINUTE_MS: u64 = 60_000;
const LIMIT_MAX: u32 = 1_000_000_000;
/// A year.
const WINDOW_MINUTES_MAX: u32 = 525_600;

const EXEMPT_PRIORITY: Name = Name::new("exemptPriority", "exempt_priority");
const AFTER: Name = Name::new("after", "after");
const LIMIT: Name = Name::new("limit", "limit");
const PAGE: usize = 100;
const PAGE_MAX: usize = 1_000;

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
    /// When the window that a send would be counted in now ends.
    reset_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    exempt_priority: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct QuotasAnswer<'a> {
    quotas: Vec<QuotaAnswer<'a>>,
    /// What to ask for `after` next; null at the end.
    next: Option<&'a str>,
}

/// `POST /api/config`: stores a user's quota; the count begins at zero.
///
/// ADMIN only: whoever may lift a limit is not held by it. Sending needs no more than a principal.
pub async fn put(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    audit: Audit,
    request: Request,
) -> Result<Response, ApiError> {
    check_admin(&principal, "quotas are configured by")?;
    check_writable(gateway.ledger.health())?;
    let mut fields = Fields::new(read_json(request, &gateway.limits).await?);
    let user = fields.user_id(USER_ID);
    let limit = fields.whole(RATE_LIMIT, 1..=LIMIT_MAX);
    let minutes = fields.whole(TIME_WINDOW, 1..=WINDOW_MINUTES_MAX);
    let exempts_high = fields.parsed_or(EXEMPT_PRIORITY, || false, exempted);
    fields.finish()?;
    let (Some(user), Some(limit), Some(minutes), Some(exempts_high)) = (user, limit, minutes, exempts_high)
    else {
        return Err(ApiError::internal("a field without a value and without a fault"));
    };
    let window_ms = u64::from(minutes) * MINUTE_MS;
    let rule = QuotaRule { limit, window_ms, exempts_high };
    let quota = gateway.ledger.set_quota(user.clone(), rule).await.map_err(from_ledger)?;
    audit.record("quota set", format_args!("{user}, {limit} in {minutes} min"));
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
    let user = user_id(&user)?;
    match gateway.ledger.quota(user.clone()).await.map_err(from_ledger)? {
        Some(quota) => json(StatusCode::OK, &answer(&user, &quota, gateway.clock.now())),
        None => Err(unknown_user(&user)),
    }
}

/// `GET /api/config?after=&limit=`: quotas by user id, a page at a time.
pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    _principal: Principal,
    request: Request,
) -> Result<Response, ApiError> {
    let mut fields = query::fields(request.uri());
    let after = fields.parsed_or(
        AFTER,
        || None,
        |text| {
            // As a first page's caller may leave it: empty.
            if text.is_empty() { Ok(None) } else { UserId::new(text).map(Some) }
        },
    );
    let limit = fields.parsed_or(LIMIT, || PAGE, page_size);
    fields.finish()?;
    let (Some(after), Some(limit)) = (after, limit) else {
        return Err(ApiError::internal("a field without a value and without a fault"));
    };
    // One more than is shown tells whether there is more.
    let mut found = gateway.ledger.quotas(after, limit + 1).await.map_err(from_ledger)?;
    let is_last = found.len() <= limit;
    found.truncate(limit);
    let now = gateway.clock.now();
    let quotas = found.iter().map(|(user, quota)| answer(user, quota, now)).collect();
    let next = found.last().filter(|_| !is_last).map(|(user, _)| user.as_str());
    json(StatusCode::OK, &QuotasAnswer { quotas, next })
}

/// `DELETE /api/config/{userId}`: the user can't send any more; what they have sent stays.
pub async fn delete(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    audit: Audit,
    Path(user): Path<String>,
) -> Result<Response, ApiError> {
    check_admin(&principal, "quotas are deleted by")?;
    check_writable(gateway.ledger.health())?;
    let user = user_id(&user)?;
    if !gateway.ledger.delete_quota(user.clone()).await.map_err(from_ledger)? {
        return Err(unknown_user(&user));
    }
    audit.record("quota deleted", &user);
    let mut response = StatusCode::NO_CONTENT.into_response();
    put_durability(response.headers_mut(), gateway.ledger.durability());
    Ok(response)
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
        reset_at: iso(now.plus_ms(quota.resets_in_ms(now))),
        exempt_priority: quota.exempts_high.then_some("high"),
    }
}

fn user_id(text: &str) -> Result<UserId, ApiError> {
    UserId::new(text).map_err(|wrong| ApiError::invalid_fields(vec![FieldError::new("userId", wrong.0)]))
}

/// The others would only be ahead of themselves.
fn exempted(text: &str) -> Result<bool, &'static str> {
    if text.eq_ignore_ascii_case("high") { Ok(true) } else { Err("must be high, or left out") }
}

fn page_size(text: &str) -> Result<usize, String> {
    let size = text.parse().ok().filter(|size| (1..=PAGE_MAX).contains(size));
    size.ok_or_else(|| format!("must be a whole number from 1 to {PAGE_MAX}"))
}

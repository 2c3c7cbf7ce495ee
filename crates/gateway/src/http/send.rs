use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::json;
use tidegate_domain::limits::Quota;
use tidegate_domain::{
    Admission, Admitted, Due, Fingerprint, Lane, MessageId, OnLimit, Timestamp, UserId, counted,
};
use tidegate_edge::{ApiError, Principal, read_json};

use super::admission::{key_conflict, ledger_full, queue_full};
use super::answer::{self, iso, put_durability, put_rate_limit, weaker_durability};
use super::bus::put_degraded;
use super::failure::{check_writable, from_ledger, overloaded};
use super::fields::{Fields, MESSAGE, ON_LIMIT, PRIORITY, USER_ID};
use super::idempotency::{Keyed, REPLAY, note_duplicate};
use super::quota::unknown_user;
use super::{Gateway, idempotency, priority, trace};

/// What `POST /api/send` asks for.
#[derive(Debug)]
struct Order {
    user: UserId,
    message: String,
    lane: Lane,
    defers: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SendAnswer<'a> {
    id: String,
    user_id: &'a str,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduled_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reset_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<&'static str>,
    /// It waits for the bus.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    degraded: bool,
}

/// `POST /api/send`: charges the user's quota and admits the message, both or neither.
///
/// The body is read only when the ledger takes writes and has room for one more request: overload costs a
/// caller one round trip and this process next to nothing. With the quota accelerator it is read even while the ledger
/// takes no writes: who is over their quota is told so all the same.
pub async fn send(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    request: Request,
) -> Result<Response, ApiError> {
    let answered = admit(&gateway, &principal, request).await;
    let outcome = match &answered {
        Ok((outcome, _)) => outcome,
        Err(error) => error.code(),
    };
    metrics::counter!("tidegate_send_requests_total", "outcome" => outcome).increment(1);
    answered.map(|(_, response)| response)
}

async fn admit(
    gateway: &Gateway,
    principal: &Principal,
    request: Request,
) -> Result<(&'static str, Response), ApiError> {
    let writable = check_writable(gateway.ledger.health());
    if gateway.accelerated.is_none() {
        writable.clone()?;
    }
    gateway.is_degraded([&gateway.queue])?;
    let Ok(_permit) = gateway.intake.try_acquire() else {
        return Ok(("overloaded", overloaded().into_response()));
    };
    let key = idempotency::header_key(request.headers());
    let trace = trace::of_request(request.headers());
    let claimed = priority::claimed(request.headers());
    let mut fields = Fields::new(read_json(request, &gateway.limits).await?);
    let key = fields.header(idempotency::HEADER_NAME, key);
    fields.claim(claimed);
    let order = Order::read(fields)?;
    let admission = order.admission(gateway, (&principal.name, key.as_deref()), trace.as_deref());
    if let (Some(accelerated), Err(unavailable)) = (&gateway.accelerated, writable) {
        let denial = accelerated.denial(&admission).await.ok_or(unavailable)?;
        return order.answer(gateway, denial).await;
    }
    let mut admitted = gateway.ledger.admit(vec![admission]).await.map_err(from_ledger)?;
    match admitted.pop() {
        Some(admitted) => order.answer(gateway, admitted).await,
        None => Err(ApiError::internal("the ledger gave no answer for an admission")),
    }
}

impl Order {
    fn read(mut fields: Fields) -> Result<Self, ApiError> {
        let (user, message, lane) = (fields.user_id(USER_ID), fields.text(MESSAGE), fields.lane(PRIORITY));
        let defers = fields.parsed_or(ON_LIMIT, || false, on_limit);
        fields.finish()?;
        let (Some(user), Some(message), Some(lane), Some(defers)) = (user, message, lane, defers) else {
            return Err(ApiError::internal("a field without a value and without a fault"));
        };
        Ok(Self { user, message, lane, defers })
    }

    fn admission(
        &self,
        gateway: &Gateway,
        (caller, key): (&str, Option<&str>),
        trace: Option<&str>,
    ) -> Admission {
        let mut parts = vec![
            b"send".as_slice(),
            self.user.as_str().as_bytes(),
            self.message.as_bytes(),
            self.lane.as_str().as_bytes(),
        ];
        let mut on_limit = OnLimit::Deny;
        if self.defers {
            // Another request: its caller takes another answer for an answer.
            parts.push(b"defer");
            on_limit = OnLimit::Defer { horizon_ms: gateway.defer_horizon_ms };
        }
        let (recipient, body) = (self.user.as_recipient(), self.message.as_bytes());
        let keyed = Keyed { caller, key, queue: &gateway.queue, recipient: Some(&recipient), body };
        let mut headers = tidegate_domain::Headers::default();
        // Before the key, which no caller's headers may hold.
        trace::add(&mut headers, trace);
        let idempotency =
            keyed.idempotency(gateway, || Fingerprint::of(&parts)).map(|(shown, idempotency)| {
                headers.set_key(shown);
                idempotency
            });
        Admission {
            queue: gateway.queue.clone(),
            recipient: Some(recipient),
            lane: self.lane,
            due: Due::Now,
            body: Bytes::copy_from_slice(self.message.as_bytes()),
            charge: Some(self.user.clone()),
            on_limit,
            idempotency,
            expires: None,
            headers,
            ack_required: false,
        }
    }

    async fn answer(
        &self,
        gateway: &Gateway,
        admitted: Admitted,
    ) -> Result<(&'static str, Response), ApiError> {
        match admitted {
            Admitted::Admitted { id, at, quota } => {
                Ok(("accepted", self.accepted(gateway, id, at, None, quota)?))
            }
            Admitted::Deferred { id, at, due, quota } => {
                Ok(("deferred", self.accepted(gateway, id, at, Some(due), Some(quota))?))
            }
            Admitted::Duplicate { id, at } => {
                note_duplicate(id, at);
                // The charge was the first request's; what is left now is a courtesy, not worth failing for.
                let quota = gateway.ledger.quota(self.user.clone()).await.ok().flatten();
                let (now, due) = (gateway.clock.now(), self.still_deferred(gateway, id).await);
                let mut response = self.accepted(gateway, id, now, due, quota)?;
                response.headers_mut().insert(REPLAY, HeaderValue::from_static("true"));
                Ok(("duplicate", response))
            }
            Admitted::KeyConflict { id } => Ok(("key_conflict", key_conflict(id).into_response())),
            Admitted::UnknownUser => Ok(("unknown_user", unknown_user(&self.user).into_response())),
            Admitted::OverQuota { retry_after_ms, at, quota } => {
                Ok(("over_quota", self.over_quota(retry_after_ms, at, &quota)))
            }
            Admitted::QueueFull => Ok(("queue_full", queue_full(gateway, &gateway.queue).into_response())),
            Admitted::Full => Ok(("full", ledger_full(gateway).into_response())),
        }
    }

    /// When a repeated request's message is due, if that was put off and is yet to come.
    async fn still_deferred(&self, gateway: &Gateway, id: MessageId) -> Option<Timestamp> {
        if !self.defers {
            return None;
        }
        let record = gateway.ledger.message(id).await.ok().flatten()?;
        (record.attempts.is_empty() && record.due_at > gateway.clock.now()).then_some(record.due_at)
    }

    fn accepted(
        &self,
        gateway: &Gateway,
        id: MessageId,
        at: Timestamp,
        deferred_to: Option<Timestamp>,
        quota: Option<Quota>,
    ) -> Result<Response, ApiError> {
        let durability = gateway.ledger.durability();
        // It is in the ledger: too late for a refusal.
        let degraded = gateway.bus.as_ref().is_some_and(|bus| bus.holds_back(&gateway.queue));
        let answer = SendAnswer {
            id: id.to_string(),
            user_id: self.user.as_str(),
            status: if deferred_to.is_some() { "deferred" } else { "accepted" },
            scheduled_at: deferred_to.map(iso),
            remaining: quota.map(|quota| quota.remaining(at)),
            reset_at: quota.map(|quota| iso(reset_at(&quota, at))),
            durability: weaker_durability(durability),
            degraded,
        };
        let status = if deferred_to.is_some() { StatusCode::ACCEPTED } else { StatusCode::OK };
        let mut response = answer::json(status, &answer)?;
        if let Some(quota) = quota {
            put_rate_limit(response.headers_mut(), &quota, at);
        }
        put_durability(response.headers_mut(), durability);
        put_degraded(response.headers_mut(), degraded);
        Ok(response)
    }

    fn over_quota(&self, retry_after_ms: u64, at: Timestamp, quota: &Quota) -> Response {
        let minutes = quota.window_ms / 60_000;
        let (messages, window) = (counted(quota.limit, "message"), counted(minutes, "minute"));
        let message = format!("rate limit exceeded: user {} may send {messages} per {window}", self.user);
        let mut response = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "quota_exceeded", message)
            .retry_after_ms(retry_after_ms)
            .with("remaining", json!(quota.remaining(at)))
            .with("resetAt", json!(iso(reset_at(quota, at))))
            .with(
                "quota",
                json!({
                    "userId": self.user.as_str(),
                    "rateLimit": quota.limit,
                    "timeWindow": minutes,
                    "resetAt": iso(reset_at(quota, at)),
                }),
            )
            .into_response();
        put_rate_limit(response.headers_mut(), quota, at);
        response
    }
}

fn on_limit(text: &str) -> Result<bool, &'static str> {
    match text {
        "defer" => Ok(true),
        "reject" => Ok(false),
        _ => Err("must be \"reject\" or \"defer\""),
    }
}

fn reset_at(quota: &Quota, now: Timestamp) -> Timestamp {
    now.plus_ms(quota.resets_in_ms(now))
}

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use serde_json::json;
use tidegate_domain::limits::{
    BucketRule, BucketsError, DeniedKey, FailStrategy, InForce, KeyStrategy, MissingKey, Take,
};
use tidegate_edge::{ApiError, Audit, FieldError, Principal, Role};

use super::Gateway;
use super::answer;
use crate::live_policies::ReloadError;

const MS_NS: u64 = 1_000_000;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PolicyAnswer<'a> {
    name: &'a str,
    path_pattern: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    methods: Option<&'a [String]>,
    key_strategy: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing_key: Option<&'static str>,
    capacity: u32,
    refill_tokens_per_second: f64,
    cost: u32,
    fail_strategy: &'static str,
    /// What a bucket holds here while the store is away.
    #[serde(skip_serializing_if = "Option::is_none")]
    fall_back_capacity: Option<u32>,
    shadow: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    exempt_priority: Option<&'static str>,
    counts: CountsAnswer,
    most_denied: Vec<DeniedAnswer>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CountsAnswer {
    allowed: u64,
    denied: u64,
    degraded: u64,
    shadow_denied: u64,
    exempted: u64,
}

/// `denied` may count up to `overcount` denials of others: the list is short.
#[derive(Debug, Serialize)]
struct DeniedAnswer {
    key: String,
    denied: u64,
    overcount: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct KeyAnswer<'a> {
    policy: &'a str,
    key: &'a str,
    tokens: u32,
    capacity: u32,
    full_in_ms: u64,
    would_pass: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

/// `GET /admin/policies`: what is in force, what it did, and to whom most.
pub async fn list(State(gateway): State<Arc<Gateway>>, principal: Principal) -> Result<Response, ApiError> {
    check_admin(&principal)?;
    let (in_force, buckets) = (gateway.policies.engine.in_force(), gateway.policies.engine.buckets());
    // Where several gateways share a store, another one may have put a newer rule in force.
    let rule = |policy: &InForce| buckets.in_force(policy.id).unwrap_or(policy.policy.rule);
    let policies: Vec<_> = in_force.iter().map(|policy| policy_answer(policy, &rule(policy))).collect();
    let counts = buckets.counts();
    let body = json!({
        "policies": policies,
        "buckets": counts.buckets,
        "forcedEvictions": counts.forced_evictions,
    });
    answer::json(StatusCode::OK, &body)
}

/// `POST /admin/policies/reload`: reads the configuration again; its policies are in force when this answers.
pub async fn reload(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    audit: Audit,
) -> Result<Response, ApiError> {
    check_admin(&principal)?;
    match gateway.policies.reload().await {
        Ok(count) => {
            audit.record("policies reloaded", format_args!("{count} in force"));
            answer::json(StatusCode::OK, &json!({"status": "reloaded", "policies": count}))
        }
        Err(ReloadError::Problems(problems)) => {
            let listed: Vec<_> = problems.0.iter().map(ToString::to_string).collect();
            let message = "the configuration has problems; the policies of before stay in force";
            Err(ApiError::bad_request("invalid_configuration", message).with("problems", json!(listed)))
        }
        Err(ReloadError::Store(error)) => Err(from_buckets(error)),
        Err(ReloadError::Unreadable(what)) => {
            let message = "the configuration could not be read; the policies of before stay in force";
            Err(ApiError::bad_request("unreadable_configuration", message).caused_by(what))
        }
    }
}

/// `GET /admin/policies/{name}/keys/{key}`: one bucket as it stands. The key as the list shows it, an API key by its
/// SHA-256, an IPv6 client by its network; an address or an API key itself will do.
pub async fn peek(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    Path((name, key)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    check_admin(&principal)?;
    let policy = find(&gateway, &name)?;
    let key = key_of(&gateway, &policy, &key)?;
    let bucket = Take { policy: policy.id, key: &key };
    let standing = gateway.policies.engine.buckets().peek(bucket).await.map_err(from_buckets)?;
    let standing = standing.ok_or_else(|| unknown(&name))?;
    let body = KeyAnswer {
        policy: &name,
        key: &key,
        tokens: standing.remaining,
        capacity: standing.rule.unwrap_or(policy.policy.rule).capacity(),
        full_in_ms: standing.full_in_ns.div_ceil(MS_NS),
        would_pass: !standing.lacked,
        retry_after_ms: standing.lacked.then(|| standing.retry_after_ns.div_ceil(MS_NS)),
    };
    answer::json(StatusCode::OK, &body)
}

/// `DELETE /admin/policies/{name}/keys/{key}`: fills one bucket.
pub async fn reset(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    audit: Audit,
    Path((name, key)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    check_admin(&principal)?;
    let policy = find(&gateway, &name)?;
    let key = key_of(&gateway, &policy, &key)?;
    let bucket = Take { policy: policy.id, key: &key };
    gateway.policies.engine.reset(bucket).await.map_err(from_buckets)?;
    audit.record("bucket filled", format_args!("{name} {key}"));
    answer::json(StatusCode::OK, &json!({"status": "reset", "policy": name, "key": key}))
}

fn check_admin(principal: &Principal) -> Result<(), ApiError> {
    if principal.role == Role::Admin {
        return Ok(());
    }
    let message = "policies are the business of principals with the role ADMIN";
    Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden", message))
}

fn find(gateway: &Gateway, name: &str) -> Result<Arc<InForce>, ApiError> {
    gateway.policies.engine.by_name(name).ok_or_else(|| unknown(name))
}

fn key_of(gateway: &Gateway, policy: &InForce, text: &str) -> Result<String, ApiError> {
    gateway
        .gate
        .key_named(&policy.policy, text)
        .map_err(|wrong| ApiError::invalid_fields(vec![FieldError::new("key", wrong)]))
}

fn unknown(name: &str) -> ApiError {
    ApiError::not_found("unknown_policy", format!("there is no policy {name:?}"))
}

fn from_buckets(error: BucketsError) -> ApiError {
    ApiError::unavailable("the store of the buckets is unavailable; try again soon").caused_by(error)
}

fn policy_answer<'a>(known: &'a InForce, rule: &BucketRule) -> PolicyAnswer<'a> {
    let (policy, outcomes) = (&known.policy, known.tally.outcomes());
    let (header, missing) = match &policy.key {
        KeyStrategy::Header { name, missing } => (Some(name.as_str()), Some(missing)),
        KeyStrategy::ApiKey { missing } => (None, Some(missing)),
        KeyStrategy::Ip | KeyStrategy::Principal => (None, None),
    };
    let missing_key = missing.map(|missing| match missing {
        MissingKey::Anonymous => "anonymous",
        MissingKey::Refuse => "refuse",
    });
    let denied = |DeniedKey { key, denied, over }| DeniedAnswer { key: key.into(), denied, overcount: over };
    PolicyAnswer {
        name: policy.name.as_str(),
        path_pattern: policy.pattern.as_str(),
        methods: policy.methods.as_deref(),
        key_strategy: policy.key.as_str(),
        header,
        missing_key,
        capacity: rule.capacity(),
        // As it was written, where that is the one in force.
        refill_tokens_per_second: match rule.ns_per_token() == policy.rule.ns_per_token() {
            true => policy.refill_per_second,
            false => rule.refill_per_second(),
        },
        cost: rule.cost(),
        fail_strategy: policy.fail.as_str(),
        fall_back_capacity: match policy.fail {
            FailStrategy::FallBack(share) => Some(share.capacity()),
            FailStrategy::Open | FailStrategy::Closed => None,
        },
        shadow: policy.rule.shadow(),
        exempt_priority: policy.exempts_high.then_some("high"),
        counts: CountsAnswer {
            allowed: outcomes.allowed,
            denied: outcomes.denied,
            degraded: outcomes.degraded,
            shadow_denied: outcomes.shadow_denied,
            exempted: outcomes.exempted,
        },
        most_denied: known.tally.denied_keys().into_iter().map(denied).collect(),
    }
}

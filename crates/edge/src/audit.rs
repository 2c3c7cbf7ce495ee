//! What an operator wants to find later: who tried to get in, and who changed what. One target in the log, whatever
//! file says it, so that it can be kept apart. No bodies, no secrets.

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::Principal;
use crate::network::ClientNetwork;
use crate::request_id::RequestId;

/// The target of all audit lines, at level info.
pub const AUDIT: &str = "tidegate::audit";

/// Names come from the client and may be long.
const NAME_CHARS_MAX: usize = 64;

/// Writes audit lines about one request, or one signal: what its sender has changed, once it is changed.
#[derive(Clone, Debug)]
pub struct Audit {
    principal: Option<Arc<str>>,
    request_id: Option<RequestId>,
}

impl Audit {
    /// A signal to the process: it carries no principal.
    pub fn of_signal(name: &'static str) -> Self {
        Self { principal: Some(Arc::from(name)), request_id: None }
    }

    /// `subject` names what was changed. It holds no message and no secret.
    pub fn record(&self, action: &'static str, subject: impl Display) {
        let principal = self.principal.as_deref().unwrap_or_default();
        // As a text, which the log quotes and escapes: it may hold what a caller wrote.
        let subject = &*subject.to_string();
        tracing::info!(target: AUDIT, principal, request_id = text(self.request_id.as_ref()), subject, "{action}");
    }
}

impl<S: Sync> FromRequestParts<S> for Audit {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        let extensions = &parts.extensions;
        let principal = extensions.get().map(|principal: &Principal| principal.name.clone());
        Ok(Self { principal, request_id: extensions.get().cloned() })
    }
}

pub(crate) fn login_failed(name: &str, client: ClientNetwork, request_id: Option<&RequestId>) {
    tracing::info!(target: AUDIT, principal = &*short(name), %client, request_id = text(request_id), "login failed");
}

pub(crate) fn locked_out(name: &str, client: ClientNetwork, request_id: Option<&RequestId>) {
    tracing::info!(target: AUDIT, principal = &*short(name), %client, request_id = text(request_id), "client locked out");
}

fn short(name: &str) -> String {
    name.chars().take(NAME_CHARS_MAX).collect()
}

fn text(request_id: Option<&RequestId>) -> &str {
    request_id.map_or("", RequestId::as_str)
}

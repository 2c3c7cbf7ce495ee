//! What an operator wants to find later: who tried to get in, and who changed what. One target in the log, whatever
//! file says it, so that it can be kept apart. No bodies, no secrets.

use std::convert::Infallible;
use std::fmt::Display;

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::Principal;
use crate::network::ClientNetwork;
use crate::request_id::RequestId;

/// The target of all audit lines, at level info.
pub const AUDIT: &str = "tidegate::audit";

/// Names come from the client and may be long.
const NAME_CHARS_MAX: usize = 64;

/// Writes audit lines about one request: what its principal has changed, once it is changed.
#[derive(Clone, Debug)]
pub struct Audit {
    principal: Option<Principal>,
    request_id: Option<RequestId>,
}

impl Audit {
    /// `subject` names what was changed. It holds no message and no secret.
    pub fn record(&self, action: &'static str, subject: impl Display) {
        let principal = self.principal.as_ref().map_or("", |principal| &*principal.name);
        tracing::info!(target: AUDIT, principal, request_id = text(self.request_id.as_ref()), %subject, "{action}");
    }
}

impl<S: Sync> FromRequestParts<S> for Audit {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        let extensions = &parts.extensions;
        Ok(Self { principal: extensions.get().cloned(), request_id: extensions.get().cloned() })
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

//! What an operator wants to find later: who tried to get in, and who changed what. One target in the log, whatever
//! file says it, so that it can be kept apart. No bodies, no secrets.

use crate::network::ClientNetwork;
use crate::request_id::RequestId;

/// The target of all audit lines, at level info.
pub const AUDIT: &str = "tidegate::audit";

/// Names come from the client and may be long.
const NAME_CHARS_MAX: usize = 64;

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

use http::StatusCode;
use tidegate_domain::{Health, LedgerError};
use tidegate_edge::{ApiError, Principal, Role};

const SOON_MS: u64 = 1_000;
const LATER_MS: u64 = 5_000;

/// What a caller is told when the ledger could not do it: whether anything happened, and when to come back.
pub fn from_ledger(error: LedgerError) -> ApiError {
    match error {
        LedgerError::Overloaded => overloaded(),
        LedgerError::Unavailable(_) => unavailable().caused_by(error),
        LedgerError::NoSpace(_) => no_space().caused_by(error),
        LedgerError::OutcomeUnknown(_) => {
            let message = "it is not known whether this was stored; send it again with the same Idempotency-Key or eventId";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "outcome_unknown", message)
                .retry_after_ms(SOON_MS)
                .caused_by(error)
        }
        LedgerError::Corrupt(_) | LedgerError::Defect(_) => ApiError::internal(error),
    }
}

/// Whether the ledger takes writes now, asked before anything is read from the caller. The ledger has logged
/// why; saying it again for every request would bury it.
pub fn check_writable(health: Health) -> Result<(), ApiError> {
    match health {
        Health::Ready => Ok(()),
        Health::ReadOnly(_) => Err(no_space()),
        Health::Away(_) | Health::Failed(_) => Err(unavailable()),
    }
}

/// `what` is done by whom: "quotas are configured by".
pub fn check_admin(principal: &Principal, what: &str) -> Result<(), ApiError> {
    if principal.role == Role::Admin {
        return Ok(());
    }
    let message = format!("{what} principals with the role ADMIN");
    Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden", message))
}

pub fn overloaded() -> ApiError {
    let message = "too many requests are under way; nothing was stored, try again soon";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", message).retry_after_ms(SOON_MS)
}

pub fn full() -> ApiError {
    let message = "as many messages, slots or queues are held as the gateway may hold; nothing was stored, try again later";
    ApiError::new(StatusCode::TOO_MANY_REQUESTS, "ledger_full", message).retry_after_ms(LATER_MS)
}

fn unavailable() -> ApiError {
    ApiError::unavailable("the service is temporarily unavailable; nothing was stored, try again soon")
        .retry_after_ms(SOON_MS)
}

fn no_space() -> ApiError {
    let message = "there is no room to store this; nothing was stored, try again when there is room";
    ApiError::new(StatusCode::INSUFFICIENT_STORAGE, "no_space", message).retry_after_ms(LATER_MS)
}

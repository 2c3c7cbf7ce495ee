use std::sync::Arc;
use std::time::Duration;

use axum::body::HttpBody as _;
use axum::response::Response;
use tidegate_edge::{ApiError, hold_until_sent};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::failure::overloaded;

/// Each may hold `BATCH_BYTES_MAX` of texts as they were read, and then as JSON, where a character may take six bytes.
const AT_ONCE_MAX: usize = 8;
/// Answers of that size are of no account.
const SMALL_BYTES: u64 = 64 << 10;
/// How long a request waits for its place.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Answers with many bodies: what one of them may hold is bounded by the ledger, how many there are at the same time is
/// bounded here.
#[derive(Debug, Clone)]
pub struct LargeAnswers(Arc<Semaphore>);

/// The place of one answer, from before its bodies are read until it is sent.
#[derive(Debug)]
pub struct Place(OwnedSemaphorePermit);

impl Default for LargeAnswers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE_MAX)))
    }
}

impl LargeAnswers {
    pub async fn begin(&self) -> Result<Place, ApiError> {
        match tokio::time::timeout(WAIT_MAX, self.0.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Place(permit)),
            _ => Err(overloaded()),
        }
    }

    /// None when every place is taken.
    pub fn try_begin(&self) -> Option<Place> {
        self.0.clone().try_acquire_owned().ok().map(Place)
    }
}

impl Place {
    /// A small answer gives its place back at once: clients that read slowly keep only large ones waiting.
    pub fn until_sent(self, response: Response) -> Response {
        if response.body().size_hint().exact().is_some_and(|bytes| bytes <= SMALL_BYTES) {
            return response;
        }
        hold_until_sent(response, self.0)
    }
}

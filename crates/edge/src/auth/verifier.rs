use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_domain::{Clock, Timestamp};
use tokio::time::timeout;

use super::line::{Line, Refusal, Verdict, Waiting};
use super::secret::{Digest, Memory};
use super::throttle::Throttle;
use super::verified::Verified;
use super::{Attempt, Principal, Principals, throttled, unauthenticated};
use crate::{ApiError, audit, tally};

/// How long a request waits for its verdict.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// After a wrong password, so many times as long as it took: guesses get a tenth of one processor, at most.
const REST_FACTOR: u32 = 9;
/// On a busy machine a check takes longer, but no more of the processor.
const REST_MAX: Duration = Duration::from_millis(200);
/// Of the thread that verifies, below all others of the process: the work of callers that are known comes first.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// Verifies passwords with argon2id, one at a time, on a thread of its own.
///
/// One thread has one block of memory, which it keeps: argon2id needs 19 MiB or more for each check, and a pool of
/// threads would have that many times as much, and never give it back. Verdicts are remembered, so a caller waits
/// for this thread once in a while only.
#[derive(Debug)]
pub(super) struct Verifier {
    pub principals: Principals,
    pub clock: Arc<dyn Clock>,
    pub throttle: Throttle,
    verified: Verified,
    line: Line,
    running: AtomicBool,
}

impl Verifier {
    pub fn new(principals: Principals, clock: Arc<dyn Clock>) -> Self {
        Self {
            principals,
            clock,
            throttle: Throttle::default(),
            verified: Verified::default(),
            line: Line::default(),
            running: AtomicBool::new(false),
        }
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Whose password it is, if it was verified lately.
    pub fn recall(&self, digest: &Digest) -> Option<Principal> {
        self.verified.recall(digest, self.now())
    }

    /// The verdict about a password, after waiting for its turn.
    pub async fn verify(self: &Arc<Self>, attempt: Attempt) -> Result<Principal, ApiError> {
        self.run()?;
        let verdict = match self.line.join(attempt, &self.throttle, self.now()) {
            Ok(verdict) => verdict,
            Err(Refusal::Full) => return Err(busy()),
            Err(Refusal::ClientFull) => return Err(throttled(1_000)),
        };
        match timeout(WAIT_MAX, verdict).await {
            Ok(Ok(Verdict::Right(principal))) => Ok(principal),
            Ok(Ok(Verdict::Wrong)) => Err(unauthenticated()),
            Ok(Ok(Verdict::LockedOut { retry_after_ms })) => Err(throttled(retry_after_ms)),
            Ok(Err(_)) | Err(_) => Err(busy()),
        }
    }

    /// Ends the thread.
    pub fn close(&self) {
        self.line.close();
    }

    /// Counts a failure of a client, and says so where failures are looked for.
    pub fn count_failure(&self, attempt: &Attempt) {
        tally::refused("unauthenticated");
        audit::login_failed(&attempt.user, attempt.client, attempt.request_id.as_ref());
        if self.throttle.count(attempt.client, self.now()) {
            audit::locked_out(&attempt.user, attempt.client, attempt.request_id.as_ref());
        }
    }

    /// Starts the thread, with the first password or after a panic.
    fn run(self: &Arc<Self>) -> Result<(), ApiError> {
        if self.running.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let running = Running(self.clone());
        let spawned = thread::Builder::new().name("passwords".to_owned()).spawn(move || running.0.work());
        spawned.map(drop).map_err(|error| busy().caused_by(error))
    }

    fn work(&self) {
        lower_priority();
        let mut memory = Memory::default();
        while let Some(waiting) = self.line.next(&self.throttle, || self.now()) {
            let started = Instant::now();
            let Some(verdict) = self.judge(&waiting, &mut memory) else { continue };
            let rests = matches!(verdict, Verdict::Wrong);
            for request in waiting.requests {
                let _ = request.send(verdict.clone());
            }
            if rests {
                thread::sleep((started.elapsed() * REST_FACTOR).min(REST_MAX));
            }
        }
    }

    /// None when no request waits for it any more.
    fn judge(&self, waiting: &Waiting, memory: &mut Memory) -> Option<Verdict> {
        let attempt = &waiting.attempt;
        if waiting.requests.iter().all(|request| request.is_closed()) {
            return None;
        }
        // While this one waited, another connection may have brought the same password, or failed too often.
        if let Some(principal) = self.recall(&attempt.digest) {
            return Some(Verdict::Right(principal));
        }
        if let Err(retry_after_ms) = self.throttle.check(attempt.client, self.now()) {
            return Some(Verdict::LockedOut { retry_after_ms });
        }
        match self.principals.by_password(&attempt.user, &attempt.password, memory) {
            Some(principal) => {
                self.verified.remember(attempt.digest, principal.clone(), self.now());
                Some(Verdict::Right(principal.clone()))
            }
            None => {
                self.count_failure(attempt);
                Some(Verdict::Wrong)
            }
        }
    }
}

/// Says that the thread has ended, however it did.
struct Running(Arc<Verifier>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Release);
    }
}

fn busy() -> ApiError {
    tally::refused("password_line_full");
    ApiError::unavailable("too many passwords to verify")
}

/// On Linux a thread has a niceness of its own; elsewhere it is the whole process'.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::warn!(%error, "passwords are verified at the priority of requests");
    }
}

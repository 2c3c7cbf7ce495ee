use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tidegate_domain::Timestamp;
use tokio::sync::oneshot;

use super::throttle::Throttle;
use super::{Attempt, Principal};

/// Passwords that wait at once. Beyond, clients with fewer failures take the places of those with more.
const LINE_MAX: usize = 1_024;
/// Of them from one client: enough for an office behind one address, after a restart.
const LINE_MAX_PER_CLIENT: usize = 16;

/// Passwords that wait to be verified, one after the other.
///
/// The next one is that of the client with the fewest failures, and of those the oldest: one guess puts a client
/// behind everyone who has not guessed yet. So a right password does not wait for the guesses of a thousand addresses.
#[derive(Debug, Default)]
pub(super) struct Line {
    state: Mutex<State>,
    arrival: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By arrival.
    waiting: Vec<Waiting>,
    closed: bool,
}

/// A password, and the requests that brought it.
#[derive(Debug)]
pub(super) struct Waiting {
    pub attempt: Attempt,
    pub requests: Vec<oneshot::Sender<Verdict>>,
}

#[derive(Clone, Debug)]
pub(super) enum Verdict {
    Right(Principal),
    Wrong,
    /// Not verified: the client has failed too often meanwhile.
    LockedOut {
        retry_after_ms: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// All places are taken.
    Full,
    /// All places of this client are taken.
    ClientFull,
}

impl Line {
    /// The verdict comes by the receiver, or its sender is dropped when a client with fewer failures takes the place.
    pub fn join(
        &self,
        attempt: Attempt,
        throttle: &Throttle,
        now: Timestamp,
    ) -> Result<oneshot::Receiver<Verdict>, Refusal> {
        let mut state = self.lock();
        let (request, verdict) = oneshot::channel();
        let same = |other: &Attempt| (other.client, other.digest) == (attempt.client, attempt.digest);
        if let Some(waiting) = state.waiting.iter_mut().find(|waiting| same(&waiting.attempt)) {
            waiting.requests.push(request);
            return Ok(verdict);
        }
        let of_client = state.waiting.iter().filter(|waiting| waiting.attempt.client == attempt.client);
        if of_client.count() >= LINE_MAX_PER_CLIENT {
            return Err(Refusal::ClientFull);
        }
        if state.waiting.len() >= LINE_MAX {
            state.displace(throttle.failures(attempt.client, now), throttle, now)?;
        }
        state.waiting.push(Waiting { attempt, requests: vec![request] });
        self.arrival.notify_one();
        Ok(verdict)
    }

    /// Waits for the next one. None once the line is closed.
    pub fn next(&self, throttle: &Throttle, now: impl Fn() -> Timestamp) -> Option<Waiting> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            let now = now();
            let failures = |waiting: &Waiting| throttle.failures(waiting.attempt.client, now);
            let next = state.waiting.iter().enumerate().min_by_key(|(place, one)| (failures(one), *place));
            match next.map(|(place, _)| place) {
                Some(place) => return Some(state.waiting.remove(place)),
                None => state = self.arrival.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// No password is verified any more; the waiting ones are given up.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.waiting.clear();
        self.arrival.notify_all();
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Nothing here is left half-written by a panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Sends the last in the order away, if it has failed more often.
    fn displace(&mut self, failures: u32, throttle: &Throttle, now: Timestamp) -> Result<(), Refusal> {
        let of = |waiting: &Waiting| throttle.failures(waiting.attempt.client, now);
        let last = self.waiting.iter().enumerate().max_by_key(|(place, one)| (of(one), *place));
        match last {
            Some((place, waiting)) if of(waiting) > failures => {
                self.waiting.remove(place);
                Ok(())
            }
            _ => Err(Refusal::Full),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::network::ClientNetwork;

    fn attempt(client: u32, password: u8) -> Attempt {
        Attempt {
            client: ClientNetwork::of(Ipv4Addr::from_bits(client).into()),
            user: "anna".to_owned(),
            password: vec![password],
            digest: [password; 32],
            request_id: None,
        }
    }

    fn now() -> Timestamp {
        Timestamp::from_millis(0)
    }

    #[test]
    fn the_client_with_the_fewest_failures_is_next() {
        let (line, throttle) = (Line::default(), Throttle::default());
        throttle.count(attempt(1, 0).client, now());
        for (client, password) in [(1, 1), (2, 2), (1, 3), (3, 4), (2, 5)] {
            line.join(attempt(client, password), &throttle, now()).unwrap();
        }
        let next = || line.next(&throttle, now).map(|waiting| waiting.attempt.password[0]);
        let first = next();
        throttle.count(attempt(2, 0).client, now());
        throttle.count(attempt(2, 0).client, now());
        let rest = [(); 4].map(|()| next());
        assert_eq!((first, rest), (Some(2), [Some(4), Some(1), Some(3), Some(5)]));
        line.close();
        assert!(line.next(&throttle, now).is_none());
    }

    #[test]
    fn requests_of_a_client_with_one_password_have_one_place() {
        let (line, throttle) = (Line::default(), Throttle::default());
        for _ in 0..100 {
            line.join(attempt(1, 1), &throttle, now()).unwrap();
        }
        line.join(attempt(2, 1), &throttle, now()).unwrap();
        assert_eq!((line.len(), line.next(&throttle, now).unwrap().requests.len()), (2, 100));
    }

    #[test]
    fn a_client_has_its_share_of_the_line() {
        let (line, throttle) = (Line::default(), Throttle::default());
        for password in 0..16 {
            line.join(attempt(1, password), &throttle, now()).unwrap();
        }
        assert_eq!(line.join(attempt(1, 16), &throttle, now()).unwrap_err(), Refusal::ClientFull);
        line.join(attempt(2, 16), &throttle, now()).unwrap();
    }

    #[test]
    fn in_a_full_line_a_guess_makes_room_for_a_client_that_has_not_failed() {
        let (line, throttle) = (Line::default(), Throttle::default());
        let clients = u32::try_from(LINE_MAX).unwrap();
        let mut verdicts: Vec<_> =
            (0..clients).map(|client| line.join(attempt(client, 1), &throttle, now()).unwrap()).collect();
        let newcomer = || line.join(attempt(clients, 2), &throttle, now());
        assert_eq!(newcomer().unwrap_err(), Refusal::Full, "everyone is as good");
        throttle.count(attempt(7, 0).client, now());
        let verdict = newcomer();
        assert!(verdict.is_ok());
        assert!(matches!(verdicts[7].try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        assert!(matches!(verdicts[8].try_recv(), Err(oneshot::error::TryRecvError::Empty)));
        assert_eq!(line.len(), LINE_MAX);
    }
}

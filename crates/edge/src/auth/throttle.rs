use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_domain::Timestamp;

use crate::network::ClientNetwork;

const FAILURES_MAX: u32 = 10;
const WINDOW_MS: u64 = 60 * 1_000;
const ENTRIES_MAX: usize = 4_096;

/// Failed attempts per client. Not per user name: then everybody could lock a name's owner out, by guessing at it.
/// A client that is locked out is still let in with a password that was verified lately, or with an API key: these are
/// recognised before the throttle is asked.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    windows: Mutex<HashMap<ClientNetwork, Window>>,
}

#[derive(Debug)]
struct Window {
    since: Timestamp,
    failures: u32,
}

impl Throttle {
    /// How long to wait, in ms, when the client has failed too often.
    pub fn check(&self, client: ClientNetwork, now: Timestamp) -> Result<(), u64> {
        match self.lock().get(&client) {
            Some(window) if window.failures_at(now) >= FAILURES_MAX => {
                Err(WINDOW_MS.saturating_sub(now.since_ms(window.since)))
            }
            _ => Ok(()),
        }
    }

    /// Whether this failure has locked the client out.
    pub fn count(&self, client: ClientNetwork, now: Timestamp) -> bool {
        let mut windows = self.lock();
        if !windows.contains_key(&client) && windows.len() >= ENTRIES_MAX {
            make_room(&mut windows, now);
        }
        let window = windows.entry(client).or_insert(Window { since: now, failures: 0 });
        if window.failures_at(now) == 0 {
            *window = Window { since: now, failures: 0 };
        }
        window.failures = window.failures.saturating_add(1);
        window.failures == FAILURES_MAX
    }

    pub fn failures(&self, client: ClientNetwork, now: Timestamp) -> u32 {
        self.lock().get(&client).map_or(0, |window| window.failures_at(now))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClientNetwork, Window>> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Window {
    fn failures_at(&self, now: Timestamp) -> u32 {
        if now.since_ms(self.since) < WINDOW_MS { self.failures } else { 0 }
    }
}

/// Drops what is over; if nothing is, the least suspicious, so that a flood of new clients does not free one that is
/// locked out.
fn make_room(windows: &mut HashMap<ClientNetwork, Window>, now: Timestamp) {
    windows.retain(|_, window| window.failures_at(now) > 0);
    if windows.len() >= ENTRIES_MAX {
        let least =
            windows.iter().min_by_key(|(_, window)| (window.failures, window.since)).map(|(key, _)| *key);
        least.map(|key| windows.remove(&key));
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn client(n: u32) -> ClientNetwork {
        ClientNetwork::of(Ipv4Addr::from_bits(n).into())
    }

    #[test]
    fn the_eleventh_attempt_within_a_minute_waits_for_the_minute_to_end() {
        let (throttle, at) = (Throttle::default(), Timestamp::from_millis);
        for n in 0..10 {
            assert_eq!(throttle.check(client(1), at(n)), Ok(()));
            assert_eq!(throttle.count(client(1), at(n)), n == 9, "the tenth locks the client out");
        }
        assert_eq!(throttle.check(client(1), at(20_000)), Err(40_000));
        assert_eq!(throttle.check(client(2), at(20_000)), Ok(()));
        assert_eq!(throttle.check(client(1), at(60_000)), Ok(()));
        throttle.count(client(1), at(60_000));
        assert_eq!(
            (throttle.check(client(1), at(60_000)), throttle.failures(client(1), at(60_000))),
            (Ok(()), 1)
        );
    }

    #[test]
    fn a_flood_of_clients_stays_bounded_and_does_not_free_the_locked_out() {
        let (throttle, now) = (Throttle::default(), Timestamp::from_millis(0));
        for _ in 0..FAILURES_MAX {
            throttle.count(client(0), now);
        }
        for n in 1..6_000 {
            throttle.count(client(n), now);
        }
        assert_eq!(throttle.lock().len(), ENTRIES_MAX);
        assert!(throttle.check(client(0), now).is_err());
    }
}

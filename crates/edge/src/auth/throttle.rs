use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use tidegate_domain::Timestamp;

use super::secret::Digest;

const FAILURES_MAX: u32 = 10;
const WINDOW_MS: u64 = 60 * 1_000;
const ENTRIES_MAX: usize = 4_096;

/// Failed attempts per client and per user name. Someone can lock a name for others this way, but not for those
/// whose password was verified lately, nor for API keys: these are recognised before the throttle is asked.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    windows: Mutex<HashMap<Key, Window>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Client(IpAddr),
    User(Digest),
}

#[derive(Debug)]
struct Window {
    since: Timestamp,
    failures: u32,
}

impl Key {
    /// An IPv6 client commonly owns a whole /64, and would otherwise have as many tries as addresses.
    pub fn client(ip: IpAddr) -> Self {
        Self::Client(match ip.to_canonical() {
            IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() >> 64 << 64).into()),
            v4 => v4,
        })
    }
}

impl Throttle {
    /// How long to wait, in ms, when one of the keys has failed too often.
    pub fn check(&self, keys: &[Key], now: Timestamp) -> Result<(), u64> {
        let windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let waits =
            keys.iter().filter_map(|key| windows.get(key)).filter(|window| window.failures >= FAILURES_MAX);
        match waits.map(|window| WINDOW_MS.saturating_sub(now.since_ms(window.since))).max() {
            Some(wait_ms) if wait_ms > 0 => Err(wait_ms),
            _ => Ok(()),
        }
    }

    pub fn count(&self, keys: &[Key], now: Timestamp) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        for key in keys {
            if !windows.contains_key(key) && windows.len() >= ENTRIES_MAX {
                make_room(&mut windows, now);
            }
            let window = windows.entry(*key).or_insert(Window { since: now, failures: 0 });
            if now.since_ms(window.since) >= WINDOW_MS {
                *window = Window { since: now, failures: 0 };
            }
            window.failures = window.failures.saturating_add(1);
        }
    }
}

/// Drops what is over; if nothing is, the least suspicious, so that a flood of new names does not free a
/// name under attack.
fn make_room(windows: &mut HashMap<Key, Window>, now: Timestamp) {
    windows.retain(|_, window| now.since_ms(window.since) < WINDOW_MS);
    if windows.len() >= ENTRIES_MAX {
        let least =
            windows.iter().min_by_key(|(_, window)| (window.failures, window.since)).map(|(key, _)| *key);
        least.map(|key| windows.remove(&key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(n: u32) -> Key {
        Key::client(IpAddr::V4(n.into()))
    }

    #[test]
    fn the_eleventh_attempt_within_a_minute_waits_for_the_minute_to_end() {
        let (throttle, at) = (Throttle::default(), Timestamp::from_millis);
        for n in 0..10 {
            assert_eq!(throttle.check(&[client(1)], at(n)), Ok(()));
            throttle.count(&[client(1)], at(n));
        }
        assert_eq!(throttle.check(&[client(2), client(1)], at(20_000)), Err(40_000));
        assert_eq!(throttle.check(&[client(2)], at(20_000)), Ok(()));
        assert_eq!(throttle.check(&[client(1)], at(60_000)), Ok(()));
        throttle.count(&[client(1)], at(60_000));
        assert_eq!(throttle.check(&[client(1)], at(60_000)), Ok(()));
    }

    #[test]
    fn a_flood_of_names_stays_bounded_and_does_not_free_the_throttled() {
        let (throttle, now) = (Throttle::default(), Timestamp::from_millis(0));
        for _ in 0..FAILURES_MAX {
            throttle.count(&[client(0)], now);
        }
        for n in 1..6_000 {
            throttle.count(&[client(n)], now);
        }
        assert_eq!(throttle.windows.lock().unwrap().len(), ENTRIES_MAX);
        assert!(throttle.check(&[client(0)], now).is_err());
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_together() {
        let key = |text: &str| Key::client(text.parse().unwrap());
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:1"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_eq!(key("::ffff:10.0.0.1"), key("10.0.0.1"));
    }
}

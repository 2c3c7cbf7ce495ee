use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use crate::network::ClientNetwork;

/// How many connections each client has open: none may have them all.
#[derive(Debug)]
pub(crate) struct Shares {
    max: usize,
    open: Mutex<HashMap<ClientNetwork, usize>>,
}

/// The right to one connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Arc<Shares>,
    client: ClientNetwork,
}

impl Shares {
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, open: Mutex::default() })
    }

    /// None when the client has its share open.
    pub fn take(self: &Arc<Self>, client: ClientNetwork) -> Option<Share> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(client).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(Share { shares: self.clone(), client })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut open = self.shares.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut entry) = open.entry(self.client) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_its_share_and_gets_it_back_and_nobody_is_remembered() {
        let shares = Shares::new(2);
        let client = |last: u8| ClientNetwork::of([10, 0, 0, last].into());
        let (first, second) = (shares.take(client(1)), shares.take(client(1)));
        assert!(first.is_some() && second.is_some() && shares.take(client(1)).is_none());
        let other = shares.take(client(2));
        assert!(other.is_some());
        drop(first);
        let third = shares.take(client(1));
        assert!(third.is_some() && shares.take(client(1)).is_none());
        drop((second, third, other));
        assert!(shares.open.lock().unwrap().is_empty());
    }
}

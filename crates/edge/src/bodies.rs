use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::Limits;
use crate::network::ClientNetwork;

/// How many bytes of request bodies are held, in all and by each client: clients that send much and never end must not
/// take all memory.
#[derive(Debug)]
pub(crate) struct Bodies {
    bytes_max: usize,
    per_client_max: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    by_client: HashMap<ClientNetwork, usize>,
}

/// What the body of one request holds, from its second piece until the request is answered.
#[derive(Clone, Debug)]
pub(crate) struct BodyShare(Arc<Share>);

#[derive(Debug)]
struct Share {
    bodies: Arc<Bodies>,
    /// None: a proxy, which speaks for many.
    client: Option<ClientNetwork>,
    bytes: AtomicUsize,
}

impl Bodies {
    pub fn new(limits: &Limits) -> Arc<Self> {
        let (bytes_max, percent) = (limits.bodies_bytes_max, limits.bodies_per_client_percent);
        let per_client_max = bytes_max / 100 * percent;
        Arc::new(Self { bytes_max, per_client_max, held: Mutex::default() })
    }

    /// For a body of which nothing is held yet.
    pub fn share(self: &Arc<Self>, client: Option<ClientNetwork>) -> BodyShare {
        BodyShare(Arc::new(Share { bodies: self.clone(), client, bytes: AtomicUsize::new(0) }))
    }

    /// One body of the largest size always fits where no other is.
    fn take(&self, client: Option<ClientNetwork>, more: usize, body_bytes_max: usize) -> bool {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let own = client.and_then(|client| held.by_client.get(&client)).copied().unwrap_or(0);
        let fits = held.bytes + more <= self.bytes_max.max(body_bytes_max)
            && (client.is_none() || own + more <= self.per_client_max.max(body_bytes_max));
        if fits {
            held.bytes += more;
            if let Some(client) = client {
                *held.by_client.entry(client).or_default() += more;
            }
        }
        fits
    }

    fn give_back(&self, client: Option<ClientNetwork>, bytes: usize) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.bytes -= bytes;
        if let Some(client) = client
            && let Entry::Occupied(mut entry) = held.by_client.entry(client)
        {
            *entry.get_mut() -= bytes;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

impl BodyShare {
    /// False when there is no room for a body that has grown to `bytes`.
    pub fn grow(&self, bytes: usize, body_bytes_max: usize) -> bool {
        let share = &*self.0;
        let more = bytes.saturating_sub(share.bytes.load(Ordering::Relaxed));
        let fits = share.bodies.take(share.client, more, body_bytes_max);
        if fits {
            share.bytes.fetch_add(more, Ordering::Relaxed);
        }
        fits
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut();
        if bytes > 0 {
            self.bodies.give_back(self.client, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> Option<ClientNetwork> {
        Some(ClientNetwork::of([10, 0, 0, last].into()))
    }

    #[test]
    fn bodies_have_room_in_all_and_each_client_its_share_of_it() {
        let bodies = Arc::new(Bodies { bytes_max: 100, per_client_max: 40, held: Mutex::default() });
        let (first, second, other) =
            (bodies.share(client(1)), bodies.share(client(1)), bodies.share(client(2)));
        assert!(first.grow(10, 20) && first.grow(30, 20), "a body is charged for what it has grown by");
        assert!(!second.grow(11, 20) && second.grow(10, 20));
        assert!(other.grow(40, 20));
        let proxy = bodies.share(None);
        assert!(!proxy.grow(21, 20) && proxy.grow(20, 20));
        assert!(!bodies.share(client(3)).grow(1, 20));
        drop(first);
        assert!(second.grow(40, 20));
        drop((second, other, proxy));
        let held = bodies.held.lock().unwrap();
        assert!(held.bytes == 0 && held.by_client.is_empty(), "{held:?}");
    }

    #[test]
    fn one_body_of_the_largest_size_always_fits() {
        let bodies = Arc::new(Bodies { bytes_max: 10, per_client_max: 4, held: Mutex::default() });
        let only = bodies.share(client(1));
        assert!(only.grow(50, 50) && !bodies.share(client(2)).grow(1, 50));
    }
}

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rdkafka::consumer::BaseConsumer;
use tidegate_domain::BusError;
use tokio::sync::Notify;

use super::happenings::Happenings;
use super::shelf::Shelf;

/// Where whoever receives and the thread that polls for him meet.
#[derive(Default)]
pub struct Desk {
    shelf: Mutex<Shelf>,
    client: Mutex<Weak<BaseConsumer<Happenings>>>,
    trouble: Mutex<Option<BusError>>,
    closed: AtomicBool,
    /// Something lies on the shelf that did not before.
    pub arrived: Notify,
}

impl Desk {
    pub fn shelf(&self) -> MutexGuard<'_, Shelf> {
        hold(&self.shelf)
    }

    /// Who commits; none between two sessions.
    pub fn client(&self) -> Option<Arc<BaseConsumer<Happenings>>> {
        hold(&self.client).upgrade()
    }

    pub fn set_client(&self, client: &Arc<BaseConsumer<Happenings>>) {
        *hold(&self.client) = Arc::downgrade(client);
    }

    pub fn trouble(&self) -> Option<BusError> {
        hold(&self.trouble).clone()
    }

    pub fn set_trouble(&self, trouble: Option<BusError>) {
        *hold(&self.trouble) = trouble;
    }

    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}

fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

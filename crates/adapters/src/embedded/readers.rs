use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use tidegate_domain::{Filter, LedgerError, Listing, MessageId, MessageRecord, Page, UserId};
use tokio::sync::Semaphore;

use super::ahead::{self, Ahead};
use super::directory::Directory;
use super::store;
use super::store::read::{self, StoredMessage};
use super::store::{Parties, Store, StoreError};

/// How long a look-up may wait for a connection.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Connections for look-ups beside the writer. Each is used by one look-up at a time, and briefly: a long read
/// would keep the WAL from being reused.
#[derive(Debug)]
pub(super) struct Readers {
    idle: Mutex<Vec<Connection>>,
    free: Arc<Semaphore>,
    salt: u32,
    parties: Parties,
    /// Outlives the connections.
    directory: Arc<Directory>,
    ahead: Ahead,
}

impl Readers {
    pub(super) fn open(
        directory: Arc<Directory>,
        count: usize,
        salt: u32,
        parties: Parties,
    ) -> Result<Self, StoreError> {
        let open = |_| Store::reader(directory.database());
        let idle = (0..count).map(open).collect::<Result<Vec<_>, _>>()?;
        let free = Arc::new(Semaphore::new(count));
        Ok(Self { idle: Mutex::new(idle), free, salt, parties, directory, ahead: Ahead::default() })
    }

    pub(super) fn salt(&self) -> u32 {
        self.salt
    }

    /// By ascending sequence numbers; what has no row is left out.
    pub(super) async fn messages(
        self: &Arc<Self>,
        seqs: Vec<u64>,
    ) -> Result<Vec<StoredMessage>, LedgerError> {
        self.read(move |db| read::messages(db, &seqs)).await
    }

    /// One by one, when they can't be had together.
    pub(super) async fn messages_singly(
        self: &Arc<Self>,
        seqs: Vec<u64>,
    ) -> Result<(Vec<StoredMessage>, Vec<(u64, LedgerError)>), LedgerError> {
        let path = self.directory.database().to_owned();
        let look_up = move |db: &Connection| {
            let (mut found, mut failed) = (Vec::new(), Vec::new());
            for seq in seqs {
                match read::messages(db, &[seq]) {
                    Ok(stored) => found.extend(stored),
                    Err(error) => {
                        failed.push((seq, StoreError::of(&path, error).of_message(seq).on_reading()))
                    }
                }
            }
            Ok((found, failed))
        };
        self.read(look_up).await
    }

    pub(super) fn ahead(&self) -> &Ahead {
        &self.ahead
    }

    /// Reads what will be claimed soon, in the background and only with a connection that nobody needs.
    pub(super) fn read_ahead(self: &Arc<Self>, upcoming: Vec<u64>) {
        let Some(seqs) = self.ahead.wanted(upcoming) else { return };
        let readers = self.clone();
        drop(tokio::task::spawn_blocking(move || {
            let permit = readers.free.try_acquire();
            // A read that fails is repeated by whoever needs the text, and then it is reported.
            let found = permit.ok().and_then(|_permit| readers.read_now(|db| ahead::read(db, &seqs)).ok());
            readers.ahead.put(found.unwrap_or_default());
        }));
    }

    pub(super) async fn record(
        self: &Arc<Self>,
        id: MessageId,
    ) -> Result<Option<MessageRecord>, LedgerError> {
        let (salt, path) = (self.salt, self.directory.database().to_owned());
        let look_up = move |db: &Connection| {
            // Of one moment: message, outcome and what is pending.
            let _moment = db.unchecked_transaction()?;
            Ok(read::record(db, id, salt, true)
                .map_err(|error| StoreError::of(&path, error).of_message(id.seq())))
        };
        let found = self.read(look_up).await?.map_err(StoreError::on_reading)?;
        found.transpose().map_err(LedgerError::Corrupt)
    }

    pub(super) async fn list(self: &Arc<Self>, filter: Filter, page: Page) -> Result<Listing, LedgerError> {
        let (salt, parties) = (self.salt, self.parties.clone());
        let listing = self.read(move |db| store::list::list(db, &parties, &filter, &page, salt)).await?;
        for damaged in &listing.damaged {
            tracing::error!(message_id = %damaged.id, problem = damaged.problem, "a damaged message can't be listed");
        }
        Ok(listing)
    }

    /// Users with a quota, in order.
    pub(super) async fn users(
        self: &Arc<Self>,
        after: Option<UserId>,
        max: usize,
    ) -> Result<Vec<UserId>, LedgerError> {
        self.read(move |db| read::users(db, after.as_ref(), max)).await
    }

    /// No more look-ups; those under way finish.
    pub(super) fn close(&self) {
        self.free.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        look_up: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let permit = tokio::time::timeout(WAIT_MAX, self.free.clone().acquire_owned()).await;
        let permit = permit
            .map_err(|_| LedgerError::Overloaded)?
            .map_err(|_| LedgerError::Unavailable("the ledger is closed".into()))?;
        let readers = self.clone();
        let look_up = move || {
            // A look-up whose caller has gone still has its connection.
            let _permit = permit;
            readers.read_now(look_up)
        };
        let done = tokio::task::spawn_blocking(look_up).await;
        done.unwrap_or_else(|error| Err(LedgerError::Unavailable(format!("a look-up failed: {error}"))))
    }

    fn read_now<T>(
        &self,
        look_up: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, LedgerError> {
        let take = || self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(db) = take() else { return Err(LedgerError::Unavailable("the ledger is closed".into())) };
        let result = look_up(&db);
        if !self.free.is_closed() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(db);
        }
        result.map_err(|error| StoreError::of(self.directory.database(), error).on_reading())
    }
}

#[cfg(test)]
mod tests {
    use tidegate_domain::Durability;

    use super::*;

    #[tokio::test]
    async fn a_look_up_given_up_keeps_its_connection_until_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Arc::new(Directory::lock(dir.path()).unwrap());
        drop(Store::open(directory.database(), Durability::OsBuffer).unwrap());
        let readers = Arc::new(Readers::open(directory, 1, 0, Parties::default()).unwrap());
        let (begin, begun) = tokio::sync::oneshot::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let slow = readers.clone();
        let slow = tokio::spawn(async move {
            let look_up = move |_: &Connection| {
                begin.send(()).unwrap();
                let _ = ended.recv();
                Ok(())
            };
            slow.read(look_up).await
        });
        begun.await.unwrap();
        slow.abort();
        assert!(slow.await.unwrap_err().is_cancelled());
        let next = readers.clone();
        let mut next = tokio::spawn(async move { next.users(None, 1).await });
        let early = tokio::time::timeout(Duration::from_millis(50), &mut next).await;
        assert!(early.is_err(), "there is but one connection: {early:?}");
        drop(end);
        assert_eq!(next.await.unwrap(), Ok(Vec::new()));
    }
}

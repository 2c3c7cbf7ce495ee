//! The whole state of a directory, out of it and into an empty one. Nobody else has the directory meanwhile.

mod arrival;
mod departure;

use std::sync::Arc;

use async_trait::async_trait;
use tidegate_domain::transfer::{Entry, Export, Import, Manifest, Stock, TransferError};
use tidegate_domain::{Clock, LedgerError};

use self::arrival::Arrival;
use self::departure::Departure;
use super::store::{StoreError, StoreErrorKind};
use super::{OpenError, Options};

/// Locks the directory and begins to read. Blocking.
pub fn export(options: &Options, clock: &Arc<dyn Clock>) -> Result<Box<dyn Export>, OpenError> {
    let departure = Departure::begin(options, clock.now())?;
    Ok(Box::new(Departing { manifest: departure.manifest.clone(), pages: Blocking::new(departure) }))
}

/// Locks the directory, which must hold no ledger or an empty one, and begins a new one beside it. Blocking.
pub fn import(
    options: Options,
    clock: Arc<dyn Clock>,
    manifest: Manifest,
) -> Result<Box<dyn Import>, OpenError> {
    Ok(Box::new(Arriving(Blocking::new(Arrival::begin(options, clock, manifest)?))))
}

#[derive(Debug)]
struct Departing {
    manifest: Manifest,
    pages: Blocking<Departure>,
}

#[async_trait]
impl Export for Departing {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    async fn next(&mut self) -> Result<Vec<Entry>, TransferError> {
        self.pages.run(Departure::next).await
    }
}

#[derive(Debug)]
struct Arriving(Blocking<Arrival>);

#[async_trait]
impl Import for Arriving {
    async fn put(&mut self, entries: Vec<Entry>) -> Result<(), TransferError> {
        self.0.run(move |arrival| arrival.put(entries)).await
    }

    async fn seal(&mut self) -> Result<Stock, TransferError> {
        self.0.run(Arrival::seal).await
    }

    async fn commit(mut self: Box<Self>) -> Result<(), TransferError> {
        self.0.run(Arrival::commit).await
    }
}

/// Work on files, away from the threads that must not wait. After a failure nothing more is done.
#[derive(Debug)]
struct Blocking<T>(Option<T>);

impl<T: Send + 'static> Blocking<T> {
    fn new(work: T) -> Self {
        Self(Some(work))
    }

    async fn run<A: Send + 'static>(
        &mut self,
        step: impl FnOnce(&mut T) -> Result<A, TransferError> + Send + 'static,
    ) -> Result<A, TransferError> {
        let stopped = || TransferError::Refused("it has failed or been given up before".to_owned());
        let mut work = self.0.take().ok_or_else(stopped)?;
        let done = tokio::task::spawn_blocking(move || {
            let answer = step(&mut work);
            (work, answer)
        });
        let (work, answer) = done.await.map_err(|_| stopped())?;
        self.0 = answer.is_ok().then_some(work);
        answer
    }
}

fn failed(error: &StoreError) -> TransferError {
    let said = error.to_string();
    TransferError::Ledger(match error.kind {
        StoreErrorKind::NoSpace => LedgerError::NoSpace(said),
        StoreErrorKind::Damaged | StoreErrorKind::Lost => LedgerError::Corrupt(said),
        StoreErrorKind::Failed => LedgerError::Unavailable(said),
    })
}

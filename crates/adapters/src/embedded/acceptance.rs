use std::sync::Arc;

use tidegate_domain::Clock;

use super::directory::Directory;
use super::queues::QueueRules;
use super::store::progress::SUFFIX;
use super::store::{FILE_NAME, Loss, Store, beside};
use super::{OpenError, Options};

/// Makes a ledger startable that is refused because something is missing ([`OpenError::Lost`]) or a row is damaged.
/// Returns what it was; none when a start finds everything, and then nothing has changed. Blocking.
pub fn accept_loss(options: &Options, clock: &Arc<dyn Clock>) -> Result<Option<Loss>, OpenError> {
    options.check()?;
    // No ledger is to be made where there is none.
    let database = options.dir.join(FILE_NAME);
    if !["", "-wal", SUFFIX].iter().any(|suffix| beside(&database, suffix).exists()) {
        return Err(OpenError::Missing(options.dir.clone()));
    }
    let directory = Directory::lock(&options.dir)?;
    let now = clock.now();
    let rules =
        QueueRules { by_name: options.queue_rules.iter().cloned().collect(), otherwise: options.queue_rule };
    let recover = |store: &Store| store.recover(options.limits(), rules.clone(), now).map(drop);
    let accepted = Store::accept_loss(directory.database(), now, recover)?;
    directory.sync()?;
    Ok(accepted)
}

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry as Place;
use tidegate_domain::transfer::{
    Ended, Entry, Fate, Generations, KeyEntry, Manifest, MessageEntry, SlotEntry, Stock, TransferError,
};
use tidegate_domain::{
    AttemptRecord, AttemptResult, Clock, Durability, LedgerError, QueueName, SlotConfig, SlotConfigName,
    Timestamp,
};

use super::super::book::Group;
use super::super::directory::Directory;
use super::super::queues::QueueRules;
use super::super::quotas::Account;
use super::super::rows::{
    AttemptRow, ChargeRow, MessageRow, OutcomeRow, QueueRow, QuotaRow, SlotConfigRow, SlotRow, Totals,
};
use super::super::slots::Held;
use super::super::store::progress::Progress;
use super::super::store::{FILE_NAME, Store};
use super::super::{OpenError, Options};
use super::failed;

/// An import under way: a ledger of its own, which takes the place of the empty one at the end.
#[derive(Debug)]
pub(super) struct Arrival {
    store: Option<Store>,
    directory: Directory,
    /// How far the empty ledger has got that the new one takes the place of.
    present: Progress,
    staging: PathBuf,
    options: Options,
    clock: Arc<dyn Clock>,
    manifest: Manifest,
    queues: HashMap<QueueName, u32>,
    configs: HashMap<SlotConfigName, (u16, Generations)>,
    slot_seq: u64,
    message_seq: u64,
    live_from: u64,
}

/// What one call writes.
#[derive(Default)]
struct Rows {
    group: Group,
    keys: Vec<KeyEntry>,
}

impl Arrival {
    pub(super) fn begin(
        options: Options,
        clock: Arc<dyn Clock>,
        manifest: Manifest,
    ) -> Result<Self, OpenError> {
        options.check()?;
        let directory = Directory::lock(&options.dir)?;
        let Some(present) = Store::empty(directory.database(), clock.now())? else {
            return Err(OpenError::NotEmpty(options.dir));
        };
        let staging = directory.staging();
        let fail = |cause| OpenError::Directory { dir: staging.clone(), cause };
        remove(&staging).map_err(fail)?;
        fs::DirBuilder::new().mode(0o700).create(&staging).map_err(fail)?;
        // Synced as a whole, when it is whole.
        let store = Store::open(&staging.join(FILE_NAME), Durability::OsBuffer)?;
        Ok(Self {
            store: Some(store),
            directory,
            present,
            staging,
            live_from: manifest.seq_last + 1,
            options,
            clock,
            manifest,
            queues: HashMap::new(),
            configs: HashMap::new(),
            slot_seq: 0,
            message_seq: 0,
        })
    }

    pub(super) fn put(&mut self, entries: Vec<Entry>) -> Result<(), TransferError> {
        let mut rows = Rows::default();
        let books = self.manifest.stock.books;
        rows.group.totals = Totals {
            admitted: books.admitted,
            delivered: books.delivered,
            dead: books.dead,
            expired: books.expired,
            deleted: books.deleted,
        };
        for entry in entries {
            match entry {
                Entry::Queue(queue) => {
                    self.queue(queue.name, queue.paused, true, &mut rows)?;
                }
                Entry::Quota(quota) => {
                    let account = Account { quota: quota.quota, deferrals: quota.deferrals };
                    let seq = self.manifest.seq_last;
                    rows.group.quotas.push(QuotaRow { user: quota.user, account, seq });
                }
                Entry::SlotConfig(config) => self.config(config, &mut rows)?,
                Entry::Slot(slot) => self.slot(slot, &mut rows)?,
                Entry::Message(message) => self.message(*message, &mut rows)?,
                Entry::Key(key) => rows.keys.push(key),
            }
        }
        let now = self.clock.now();
        self.store()?.load(&rows.group, &rows.keys, now).map_err(|error| failed(&error))
    }

    /// Opens it as a gateway would: what can't be served is found here.
    pub(super) fn seal(&mut self) -> Result<Stock, TransferError> {
        // The books, should nothing else be left of what they tell.
        self.put(Vec::new())?;
        let (limits, now) = (self.options.limits(), self.clock.now());
        let rules = QueueRules {
            by_name: self.options.queue_rules.iter().cloned().collect(),
            otherwise: self.options.queue_rule,
        };
        let (manifest, live_from, present) = (self.manifest.clone(), self.live_from, self.present);
        let store = self.store()?;
        store
            .continue_from(&manifest, live_from, &present, now)
            .and_then(|()| store.recover(limits, rules, now))
            .and_then(|_| store.stock(Timestamp::from_millis(i64::MIN)))
            .map_err(|error| failed(&error))
    }

    pub(super) fn commit(&mut self) -> Result<(), TransferError> {
        let store = self.store.take().ok_or_else(|| refused("it is over"))?;
        // As it carries on the empty one's count of commits, the file of progress fits before and after.
        let progress = store.close_whole(self.clock.now()).map_err(|error| failed(&error))?;
        let database = self.directory.database().to_owned();
        let present = Progress { successor: progress.checkpoint, ..self.present };
        Store::reached(&database, present).map_err(|error| failed(&error))?;
        let whole = self.staging.join(FILE_NAME);
        let placed = File::open(&whole).and_then(|file| file.sync_all());
        placed.and_then(|()| self.directory.replace(&whole)).map_err(|error| {
            let said = format!("{}: {error}", self.options.dir.display());
            TransferError::Ledger(LedgerError::Unavailable(said))
        })?;
        Store::reached(&database, progress).map_err(|error| failed(&error))?;
        self.directory
            .sync()
            .map_err(|error| TransferError::Ledger(LedgerError::OutcomeUnknown(error.to_string())))
    }

    fn store(&mut self) -> Result<&mut Store, TransferError> {
        self.store.as_mut().ok_or_else(|| refused("it is over"))
    }

    fn queue(
        &mut self,
        name: QueueName,
        paused: bool,
        live: bool,
        rows: &mut Rows,
    ) -> Result<u32, TransferError> {
        let id = u32::try_from(self.queues.len()).map_err(|_| refused("too many queues"))?;
        self.queues.insert(name.clone(), id);
        rows.group.queues.push(QueueRow { id, name, paused, live });
        Ok(id)
    }

    fn config(&mut self, config: SlotConfig, rows: &mut Rows) -> Result<(), TransferError> {
        let known = u16::try_from(self.configs.len()).map_err(|_| refused("too many slot configs"))?;
        let (id, generations) = match self.configs.entry(config.name.clone()) {
            Place::Occupied(known) => known.into_mut(),
            Place::Vacant(new) => new.insert((known, Generations::default())),
        };
        generations.add(config.rule.window_ms);
        if config.version != generations.versions() {
            let said = format!("slot config {}: version {} is out of turn", config.name, config.version);
            return Err(refused(&said));
        }
        rows.group.slot_configs.push(SlotConfigRow { config: *id, stored: config });
        Ok(())
    }

    fn slot(&mut self, slot: SlotEntry, rows: &mut Rows) -> Result<(), TransferError> {
        let known = self.configs.get(&slot.config);
        let known = known.and_then(|(id, known)| Some((*id, known.first_version(slot.generation)?)));
        let (config, version) = known.ok_or_else(|| {
            refused(&format!("the slot of event {} names an unknown config, {}", slot.event, slot.config))
        })?;
        self.slot_seq += 1;
        let held = Held {
            seq: self.slot_seq,
            window: slot.window,
            requested: slot.requested,
            scheduled: slot.scheduled,
            created: slot.created_at,
            message: slot.message.unwrap_or(0),
            version,
            config,
        };
        rows.group.slots.push(SlotRow { event: slot.event, held });
        Ok(())
    }

    fn message(&mut self, message: MessageEntry, rows: &mut Rows) -> Result<(), TransferError> {
        let seq = message.seq;
        if seq <= self.message_seq || seq > self.manifest.seq_last {
            return Err(refused(&format!("message number {seq} is out of turn")));
        }
        self.message_seq = seq;
        let queue = match (self.queues.get(&message.queue), &message.fate) {
            (Some(id), _) => *id,
            // Its queue was forgotten; the name is kept for what has ended there.
            (None, Fate::Ended(_)) => self.queue(message.queue, false, false, rows)?,
            (None, Fate::Pending { .. }) => {
                let said = format!("message number {seq} names an unknown queue, {}", message.queue);
                return Err(refused(&said));
            }
        };
        let place = match message.fate {
            Fate::Pending { place, .. } => {
                self.live_from = self.live_from.min(seq);
                place
            }
            Fate::Ended(Ended { status, at, attempt, reason }) => {
                let (attempt, latency_ms) = attempt.unwrap_or((0, 0));
                rows.group.outcomes.push(OutcomeRow { seq, status, at, attempt, latency_ms, reason });
                seq
            }
        };
        let due = if message.attempts.is_empty() { message.due_at } else { message.admitted_at };
        let attempts = attempts(seq, message.attempts, message.due_at, place)?;
        rows.group.attempts.extend(attempts);
        // The quotas' own rows contain all charges: of this one only the user is ever looked at.
        let charge = |user| ChargeRow { user, count: 0, since: message.admitted_at };
        rows.group.messages.push(MessageRow {
            seq,
            at: message.admitted_at,
            queue,
            lane: message.lane,
            due,
            recipient: message.recipient,
            charge: message.user.map(charge),
            idempotency: None,
            expires: message.expires_at,
            headers: message.headers,
            ack_required: message.ack_required,
            body: message.body,
        });
        Ok(())
    }
}

/// The last one says when the message is due; the last return of a dead letter, where it stands in its chain.
fn attempts(
    seq: u64,
    attempts: Vec<AttemptRecord>,
    due_at: Timestamp,
    place: u64,
) -> Result<Vec<AttemptRow>, TransferError> {
    let last_return = attempts.iter().rposition(|attempt| attempt.result == AttemptResult::Requeued);
    if place != seq && last_return.is_none() {
        return Err(refused(&format!("message number {seq} has lost its place: it was never requeued")));
    }
    let count = attempts.len();
    let row = |(n, attempt): (usize, AttemptRecord)| {
        let AttemptRecord { number, at, latency_ms, result, reason } = attempt;
        if !matches!(result, AttemptResult::Failed | AttemptResult::Accepted | AttemptResult::Requeued)
            || number == 0
        {
            return Err(refused(&format!("attempt {number} of message number {seq} makes no sense")));
        }
        let due = if n + 1 == count { due_at } else { at };
        let order = if place != seq && last_return == Some(n) { place } else { 0 };
        Ok(AttemptRow { seq, number, at, latency_ms, reason, due, result, order })
    };
    attempts.into_iter().enumerate().map(row).collect()
}

fn refused(said: &str) -> TransferError {
    TransferError::Refused(said.to_owned())
}

fn remove(path: &Path) -> std::io::Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    removed.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

impl Drop for Arrival {
    fn drop(&mut self) {
        drop(self.store.take());
        if let Err(error) = remove(&self.staging) {
            tracing::warn!(%error, dir = %self.staging.display(), "cannot be removed; the next import does it");
        }
        self.directory.unmake();
    }
}

use std::collections::VecDeque;

use hashbrown::HashMap;
use tidegate_domain::transfer::{Entry, Generations, Manifest, QueueEntry, SlotEntry, TransferError};
use tidegate_domain::{Durability, SlotConfigName, Timestamp};

use super::super::book::Book;
use super::super::directory::Directory;
use super::super::queues::QueueRules;
use super::super::rows::SlotRow;
use super::super::store::{FILE_NAME, Store, StoreError};
use super::super::{OpenError, Options};
use super::failed;

/// Entries that lie in memory are handed out so many at a time.
const BATCH: usize = 1_000;

/// An export under way.
#[derive(Debug)]
pub(super) struct Departure {
    pub(super) manifest: Manifest,
    store: Store,
    _directory: Directory,
    keys_since: Timestamp,
    /// Knows the queues by their numbers.
    book: Book,
    configs: HashMap<u16, (SlotConfigName, Generations)>,
    /// Queues, quotas and slot configurations.
    first: VecDeque<Entry>,
    stage: Stage,
}

/// What comes next, after the row of that number.
#[derive(Debug, Clone, Copy)]
enum Stage {
    First,
    Slots(u64),
    Messages(u64),
    Keys(u64),
    Done,
}

impl Departure {
    pub(super) fn begin(options: &Options, now: Timestamp) -> Result<Self, OpenError> {
        // Neither the lock nor SQLite is to make a ledger where there is none.
        if !options.dir.join(FILE_NAME).is_file() {
            return Err(OpenError::Missing(options.dir.clone()));
        }
        let directory = Directory::lock(&options.dir)?;
        let store = Store::open(directory.database(), Durability::Fsync)?;
        let keys_since = now.minus_ms(options.idempotency_window_ms);
        let manifest = store.manifest(keys_since)?;
        let mut departure = Self {
            book: Book::new(manifest.salt, options.limits(), QueueRules::default()),
            manifest,
            store,
            _directory: directory,
            keys_since,
            configs: HashMap::new(),
            first: VecDeque::new(),
            stage: Stage::First,
        };
        departure.read_first()?;
        Ok(departure)
    }

    fn read_first(&mut self) -> Result<(), StoreError> {
        let quotas = self.store.dump_accounts(&mut self.book)?;
        let queue = |queue: &super::super::queues::Queue| {
            Entry::Queue(QueueEntry { name: queue.name.clone(), paused: queue.paused })
        };
        self.first.extend(self.book.queues.all().map(|(_, known)| queue(known)));
        self.first.extend(quotas);
        for (id, config) in self.store.dump_slot_configs()? {
            let known = self.configs.entry(id);
            let (_, generations) = known.or_insert_with(|| (config.name.clone(), Generations::default()));
            generations.add(config.rule.window_ms);
            self.first.push_back(Entry::SlotConfig(config));
        }
        Ok(())
    }

    pub(super) fn next(&mut self) -> Result<Vec<Entry>, TransferError> {
        loop {
            let page = match self.stage {
                Stage::First => {
                    let batch = self.first.len().min(BATCH);
                    self.first.drain(..batch).collect()
                }
                Stage::Slots(after) => self.slots(after)?,
                Stage::Messages(after) => {
                    let live = |id| self.book.queues.get(id).map(|queue| queue.name.clone());
                    let name_of = |id| live(id).or_else(|| self.store.queue_name(id).ok());
                    let page = self.store.dump_messages(after, self.manifest.salt, name_of);
                    let page = page.map_err(|error| failed(&error))?;
                    self.advance(page, Stage::Messages, |message| Entry::Message(Box::new(message)))
                }
                Stage::Keys(after) => {
                    let page = self.store.dump_keys(after, self.keys_since);
                    self.advance(page.map_err(|error| failed(&error))?, Stage::Keys, Entry::Key)
                }
                Stage::Done => return Ok(Vec::new()),
            };
            if !page.is_empty() {
                return Ok(page);
            }
            self.stage = match self.stage {
                Stage::First => Stage::Slots(0),
                Stage::Slots(_) => Stage::Messages(0),
                Stage::Messages(_) => Stage::Keys(0),
                Stage::Keys(_) | Stage::Done => Stage::Done,
            };
        }
    }

    fn slots(&mut self, after: u64) -> Result<Vec<Entry>, TransferError> {
        let page = self.store.dump_slots(after).map_err(|error| failed(&error))?;
        let known = |(seq, row)| Some((seq, self.slot(row)?));
        let known: Option<Vec<_>> = page.into_iter().map(known).collect();
        let known = known.ok_or_else(|| {
            let said = "a slot names a configuration that there is not";
            TransferError::Ledger(tidegate_domain::LedgerError::Corrupt(said.to_owned()))
        })?;
        Ok(self.advance(known, Stage::Slots, Entry::Slot))
    }

    fn slot(&self, SlotRow { event, held }: SlotRow) -> Option<SlotEntry> {
        let (config, generations) = self.configs.get(&held.config)?;
        Some(SlotEntry {
            event,
            config: config.clone(),
            generation: generations.of_version(held.version)?,
            window: held.window,
            requested: held.requested,
            scheduled: held.scheduled,
            created_at: held.created,
            message: (held.message > 0).then_some(held.message),
        })
    }

    fn advance<T>(
        &mut self,
        page: Vec<(u64, T)>,
        stage: impl Fn(u64) -> Stage,
        entry: impl Fn(T) -> Entry,
    ) -> Vec<Entry> {
        if let Some((last, _)) = page.last() {
            self.stage = stage(*last);
        }
        page.into_iter().map(|(_, row)| entry(row)).collect()
    }
}

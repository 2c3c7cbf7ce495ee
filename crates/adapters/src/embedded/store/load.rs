//! Rows that come from another ledger.

use std::path::Path;

use tidegate_domain::transfer::{KeyEntry, Manifest};
use tidegate_domain::{Durability, Idempotency, Timestamp};

use super::super::book::{Group, TOKEN_BITS};
use super::progress::{Progress, ProgressFile, Reached, Unreadable};
use super::start::Files;
use super::{Commit, Marks, Parties, Store, StoreError, as_i64, set_meta, start};

impl Store {
    /// Writes rows and keys in a commit of their own.
    pub(in crate::embedded) fn load(
        &mut self,
        group: &Group,
        keys: &[KeyEntry],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let keys: Vec<_> = keys
            .iter()
            .map(|key| (key.seq, key.admitted_at, Idempotency { key: key.key, fingerprint: key.fingerprint }))
            .collect();
        let commit = Commit { totals: group.totals, ..self.commit_at(now) };
        let step = Parties::step(&group.messages);
        self.transact(commit, |store| {
            store.write_rows(group)?;
            let keyed = store.write_keys(&keys);
            keyed.and_then(|()| store.parties.write(&store.connection, &step)).map_err(|e| store.error(e))
        })?;
        self.parties.apply(step);
        self.checkpoint_if_due(now)
    }

    /// What later numbers, ids and tokens depend on. The rows take the place of an empty ledger: they are newer than it.
    pub(in crate::embedded) fn continue_from(
        &mut self,
        manifest: &Manifest,
        live_from: u64,
        present: &Progress,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let (seq_last, life) = (manifest.seq_last, manifest.token_last >> TOKEN_BITS);
        let reached = &mut self.head.reached;
        *reached = Reached {
            ledger: present.reached.ledger,
            commits: reached.commits.max(present.reached.commits),
            ..*reached
        };
        let life = life.max(present.life);
        let checkpoint = self.progress.last().checkpoint.max(present.checkpoint);
        self.progress.note(Progress { checkpoint, ..*self.progress.last() })?;
        let commit = Commit { life, ..self.commit_at(now) };
        self.transact(commit, |store| {
            let write = || {
                set_meta(&store.connection, "salt", i64::from(manifest.salt))?;
                let application = start::application_of(present.reached.ledger);
                store.connection.pragma_update(None, "application_id", application)?;
                // The next life's tokens are larger than all of this one.
                set_meta(&store.connection, "life", as_i64(life))
            };
            write().map_err(|e| store.error(e))
        })?;
        self.write_marks(&Marks { live_from, quota_seq: seq_last, seq_last }, now)
    }

    /// All of it in the one file, synced, and nothing beside it. Returns how far it has got.
    pub(in crate::embedded) fn close_whole(mut self, now: Timestamp) -> Result<Progress, StoreError> {
        self.set_sync(Durability::Fsync)?;
        let path = self.path.clone();
        match self.end(now)? {
            (true, progress) => Ok(progress),
            (false, _) => Err(StoreError::failed(&path, "another program has it open")),
        }
    }

    /// How far the ledger has got that an import takes the place of; none when something is in it. Where there is no
    /// ledger, none is made.
    pub(in crate::embedded) fn empty(
        database: &Path,
        now: Timestamp,
    ) -> Result<Option<Progress>, StoreError> {
        let files = Files::look(database)?;
        let absent = matches!(ProgressFile::open(database), Err(Unreadable::Absent));
        if files.database_bytes == 0 && files.wal_bytes == 0 && absent {
            return start::new_ledger(database).map(Some);
        }
        let store = Self::open(database, Durability::Fsync)?;
        let untouched = store.is_untouched()?;
        // Nothing of it may be left in its WAL, which must not outlive it.
        let progress = store.close_whole(now)?;
        Ok(untouched.then_some(progress))
    }

    /// Writes down how far a ledger has got that is put in its place as a whole.
    pub(in crate::embedded) fn reached(database: &Path, progress: Progress) -> Result<(), StoreError> {
        ProgressFile::create(database, progress).map(drop)
    }
}

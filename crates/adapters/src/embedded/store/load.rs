//! Rows that come from another ledger.

use tidegate_domain::Idempotency;
use tidegate_domain::transfer::{KeyEntry, Manifest};

use super::super::book::{Group, TOKEN_BITS};
use super::{Marks, Store, StoreError, as_i64, set_meta};

impl Store {
    /// Writes rows and keys in a commit of their own.
    pub(in crate::embedded) fn load(&mut self, group: &Group, keys: &[KeyEntry]) -> Result<(), StoreError> {
        self.begin()?;
        let keys: Vec<_> = keys
            .iter()
            .map(|key| (key.seq, key.admitted_at, Idempotency { key: key.key, fingerprint: key.fingerprint }))
            .collect();
        self.write_rows(group)
            .and_then(|()| self.write_keys(&keys).map_err(|e| self.error(e)))
            .and_then(|()| self.commit())
            .inspect_err(|_| self.roll_back())?;
        self.checkpoint_if_due()
    }

    /// What later numbers, ids and tokens depend on.
    pub(in crate::embedded) fn continue_from(
        &self,
        manifest: &Manifest,
        live_from: u64,
    ) -> Result<(), StoreError> {
        let seq_last = manifest.seq_last;
        let write = || {
            set_meta(&self.connection, "salt", i64::from(manifest.salt))?;
            // The next life's tokens are larger than all of this one.
            set_meta(&self.connection, "life", as_i64(manifest.token_last >> TOKEN_BITS))
        };
        write().map_err(|e| self.error(e))?;
        self.write_marks(&Marks { live_from, quota_seq: seq_last, seq_last })
    }

    /// All of it in the one file, and nothing beside it.
    pub(in crate::embedded) fn close_whole(self) -> Result<(), StoreError> {
        let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
        let busy: i64 = self.connection.query_row(sql, [], |row| row.get(0)).map_err(|e| self.error(e))?;
        self.require(busy == 0, "somebody else has it open")?;
        self.close()
    }
}

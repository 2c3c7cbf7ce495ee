//! Groups that meet the damaged page of a single message. Nothing of such a group has happened: the message is set aside, and
//! the others go on.

use tidegate_domain::Timestamp;

use super::super::book::Touched;
use super::super::store::{StoreError, StoreErrorKind};
use super::{Change, Changed, Engine, Written};

impl Change {
    /// Whether it overwrites or removes texts that are on disk.
    fn touches_texts(&self) -> bool {
        matches!(
            self,
            Self::Cancel(_) | Self::Purge { .. } | Self::Requeue(_) | Self::DeleteDead(_) | Self::Release(_)
        )
    }
}

impl Engine {
    pub(super) fn write_or_set_aside(
        &mut self,
        changes: Vec<Change>,
        now: Timestamp,
    ) -> Result<(Vec<Changed>, Written), StoreError> {
        // Only a change of texts can meet a page of a single message.
        let again = changes.iter().any(Change::touches_texts).then(|| changes.clone());
        let (group, changed) = self.decide(changes, now);
        let Some(again) = again else { return Ok((changed, self.write(group, now)?)) };
        let touched = group.touched();
        match self.write(group, now) {
            Err(error) if error.kind == StoreErrorKind::Damaged => {
                self.set_damaged_aside(&touched, error)?;
                let (group, changed) = self.decide(again, now);
                Ok((changed, self.write(group, now)?))
            }
            written => Ok((changed, written?)),
        }
    }

    /// Finds the messages that a group failed on. When it is none of them, the damage is where every commit may meet it.
    fn set_damaged_aside(&mut self, touched: &Touched, error: StoreError) -> Result<(), StoreError> {
        let found = self.store.unchangeable(touched)?;
        if found.is_empty() {
            return Err(error);
        }
        for seq in found {
            tracing::error!(seq, %error, "a message can't be erased: a page of the ledger is damaged; it stays");
            self.book.unchangeable.insert(seq);
        }
        Ok(())
    }
}

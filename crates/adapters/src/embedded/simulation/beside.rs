//! The model beside the engine: the same changes, the same answers, the same state.

use tidegate_domain::{Clock, EventId, Ledger, MessageId, MessageRecord, Queues, Slots, Status};
use tidegate_testkit::ModelLedger;

use super::super::engine::{Change, Changed};
use super::super::store;
use super::answers::{claim_text, new_ids, row_text, slot_text, text};
use super::{RETENTION_MS, World, user};

impl World {
    pub(super) fn change_both(&mut self, ours: Vec<Change>, theirs: Vec<Change>) {
        let (ours, written) = self.engine().change(ours).unwrap();
        self.engine().apply(written);
        self.model_change_beside(ours, theirs);
    }

    /// The model follows, and has to answer the same.
    pub(super) fn model_change_beside(&mut self, ours: Vec<Changed>, theirs: Vec<Change>) {
        let our_ids: Vec<_> = ours.iter().flat_map(new_ids).collect();
        let ours: Vec<_> = ours.into_iter().map(|changed| self.our_text(changed)).collect();
        let (theirs, their_ids) = self.model_change(theirs);
        assert_eq!(ours, theirs);
        self.ids.extend(our_ids.into_iter().zip(their_ids).map(|(ours, theirs)| [ours, theirs]));
    }

    pub(super) fn our_text(&self, changed: Changed) -> Vec<String> {
        let engine = self.engine.as_ref().unwrap();
        let Changed::Popped(rows) = changed else { return text(changed) };
        let popped = rows.iter().map(|row| {
            let stored = &store::read::messages(engine.store().connection(), &[row.leased.seq]).unwrap()[0];
            assert!(stored.head_sound && stored.body_sound);
            row_text(&row.leased, &stored.row, engine.book().salt)
        });
        popped.collect()
    }

    /// Both at the same moment: a sweep decides since when a queue is idle.
    pub(super) fn sweep(&mut self) {
        self.engine().sweep().unwrap();
        self.runtime.block_on(self.model.sweep()).unwrap();
    }

    pub(super) fn compare(&mut self) {
        self.sweep();
        let theirs = self.runtime.block_on(self.model.counts()).unwrap();
        assert_eq!(self.engine().counts(), theirs);
        assert!(theirs.balanced());
        let theirs = self.runtime.block_on(self.model.queue_counts()).unwrap();
        assert_eq!(self.engine().queue_counts(), theirs);
        for event in (0..12).map(|n| EventId::new(&format!("event{n}")).unwrap()) {
            let theirs = self.runtime.block_on(self.model.slot(event.clone())).unwrap();
            assert_eq!(self.engine().slot(event).map(slot_text), theirs.map(slot_text));
        }
        self.compare_parties();
        for user in (0..3).map(user) {
            let theirs = self.runtime.block_on(self.model.quota(user.clone())).unwrap();
            assert_eq!(self.engine().quota(&user), theirs, "{user}");
        }
    }

    /// Every message that was ever answered, with its attempts, unless retention let it go.
    pub(super) fn compare_records(&mut self) {
        self.sweep();
        let removable = self.clock.now().minus_ms(RETENTION_MS);
        for [ours, theirs] in &self.ids {
            let (ours, theirs) = (self.our_record(*ours), self.model_record(*theirs));
            let may_be_gone = |record: &MessageRecord| record.settled_at.is_some_and(|at| at < removable);
            if ours.is_none() && theirs.as_ref().is_some_and(may_be_gone) {
                continue;
            }
            // When it was noticed that a message's time was over, only one of the two may know.
            let comparable = |record: MessageRecord| {
                let settled_at = record.settled_at.filter(|_| record.status != Status::Expired);
                MessageRecord { id: MessageId::new(record.admitted_at, 0, 0), settled_at, ..record }
            };
            assert_eq!(ours.map(comparable), theirs.map(comparable));
        }
    }

    pub(super) fn our_record(&self, id: MessageId) -> Option<MessageRecord> {
        let engine = self.engine.as_ref().unwrap();
        let found = store::read::record(engine.store().connection(), id, engine.book().salt, true).unwrap();
        found.transpose().unwrap()
    }

    pub(super) fn model_record(&self, id: MessageId) -> Option<MessageRecord> {
        self.runtime.block_on(self.model.message(id)).unwrap()
    }

    /// What the model answers, and the messages that came into being.
    fn model_change(&self, changes: Vec<Change>) -> (Vec<Vec<String>>, Vec<MessageId>) {
        let (mut texts, mut ids) = (Vec::new(), Vec::new());
        for change in changes {
            if let Change::Pop { queue, max } = change {
                let popped = self.runtime.block_on(self.model.pop(queue, max, 0)).unwrap();
                texts.push(popped.iter().map(claim_text).collect());
            } else {
                let changed = self.runtime.block_on(model_change(&self.model, change));
                ids.extend(new_ids(&changed));
                texts.push(text(changed));
            }
            self.model.in_one_moment(true);
        }
        self.model.in_one_moment(false);
        (texts, ids)
    }
}

async fn model_change(model: &ModelLedger, change: Change) -> Changed {
    match change {
        Change::Admit(batch) => Changed::Admitted(model.admit(batch).await.unwrap()),
        Change::Settle(batch) => Changed::Settled(model.settle(batch).await.unwrap()),
        Change::DeleteQuota(user) => Changed::Deleted(model.delete_quota(user).await.unwrap()),
        Change::PutQuota { user, rule } => Changed::Quota(model.set_quota(user, rule).await.unwrap()),
        Change::Ack(ids) => Changed::Acked(model.ack(ids).await.unwrap()),
        Change::Cancel(ids) => Changed::Cancelled(model.cancel(ids).await.unwrap()),
        Change::Requeue(batch) => Changed::Requeued(model.requeue(batch).await.unwrap()),
        Change::DeleteDead(ids) => Changed::DeadDeleted(model.delete_dead(ids).await.unwrap()),
        Change::Pause { queue, paused } => Changed::Paused(model.pause(queue, paused).await.unwrap()),
        Change::Reserve(batch) => Changed::Reserved(model.reserve(batch).await.unwrap()),
        Change::Release(event) => Changed::Released(model.release(event).await.unwrap()),
        Change::PutSlotConfig(name, rule) => {
            Changed::SlotConfig(model.put_slot_config(name, rule).await.unwrap())
        }
        Change::Pop { .. } | Change::Purge { .. } | Change::Advance { .. } => {
            panic!("not asked of the model: {change:?}")
        }
    }
}

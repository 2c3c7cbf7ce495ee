//! Changes to messages that memory may no longer know. When the disk can't tell of one of them, that is the answer,
//! and the change has not happened.

use tidegate_domain::{
    Acked, Cancelled, LedgerError, MessageId, QueueName, Requeue, Requeued, Status, Timestamp,
};

use super::super::book::{Book, Group, Popped};
use super::super::rows::Past;
use super::super::store::{Store, StoreError, Stub};
use super::{Change, ClaimedRow, Engine};

/// What is decided on: the state in memory, and the rows as of the last commit.
pub(super) struct Recall<'a> {
    pub(super) book: &'a mut Book,
    pub(super) store: &'a Store,
    pub(super) group: &'a mut Group,
    pub(super) now: Timestamp,
}

/// A message that there is, and how it had ended, if memory does not know it any more.
struct Known {
    stub: Stub,
    ended: Option<Status>,
}

impl Engine {
    /// Looks for forgotten queues that a change may bring back: messages that ended there have their numbers.
    pub(super) fn recall_queues(&mut self, change: &Change) -> Result<(), StoreError> {
        match change {
            Change::Admit(batch) => {
                batch.iter().try_for_each(|admission| self.recall_queue(&admission.queue))
            }
            Change::Reserve(batch) => {
                let messages = batch.iter().filter_map(|reservation| reservation.message.as_ref());
                messages.map(|message| &message.queue).try_for_each(|queue| self.recall_queue(queue))
            }
            Change::Pause { queue, .. } => self.recall_queue(queue),
            _ => Ok(()),
        }
    }

    fn recall_queue(&mut self, name: &QueueName) -> Result<(), StoreError> {
        if self.book.queues.id(name).is_none()
            && let Some(id) = self.store.queue_id(name)?
        {
            self.book.queues.recall(name.clone(), id);
        }
        Ok(())
    }
}

impl Recall<'_> {
    pub(super) fn pop(self, queue: &QueueName, max: usize) -> Result<Vec<ClaimedRow>, LedgerError> {
        let Popped { taken, mut unread } =
            self.book.pop(queue, max, self.now, self.group, |seq| self.store.text(seq));
        let told = if taken.is_empty() { unread.pop() } else { None };
        for error in unread {
            tracing::error!(%error, "a message is set aside for a while");
        }
        let row = |(leased, message)| ClaimedRow { leased, message: Some(message) };
        told.map_or_else(|| Ok(taken.into_iter().map(row).collect()), Err)
    }

    pub(super) fn ack(self, ids: &[MessageId]) -> Result<Vec<Acked>, LedgerError> {
        let known = self.known(ids)?;
        let pasts: Result<Vec<_>, _> =
            ids.iter().zip(&known).map(|(id, known)| self.past(*id, known.as_ref())).collect();
        let pasts = pasts.map_err(StoreError::on_reading)?;
        let ack = |((id, known), past): ((&MessageId, Option<Known>), Option<Past>)| {
            let Some(Known { stub, ended }) = known else { return Acked::Unknown };
            let seq = id.seq();
            match (self.group.ended(seq).or(ended), past) {
                (Some(Status::Dead | Status::Expired), Some(past)) => {
                    return self.book.ack_late(seq, past, stub.ack_required, self.now, self.group);
                }
                (Some(Status::Delivered), _) => return Acked::Already,
                _ => {}
            }
            match self.book.ack(*id, stub.ack_required, self.now, self.group) {
                Acked::Unknown => match ended {
                    None => Acked::Unknown,
                    Some(Status::Delivered) => Acked::Already,
                    Some(_) => Acked::NotAwaited,
                },
                known => known,
            }
        };
        Ok(ids.iter().zip(known).zip(pasts).map(ack).collect())
    }

    /// Of what is dead or has expired, the rest of its story.
    fn past(&self, id: MessageId, known: Option<&Known>) -> Result<Option<Past>, StoreError> {
        let ended = known.and_then(|known| self.group.ended(id.seq()).or(known.ended));
        if !matches!(ended, Some(Status::Dead | Status::Expired)) {
            return Ok(None);
        }
        self.store.past(id.seq()).map(Some)
    }

    pub(super) fn cancel(self, ids: &[MessageId]) -> Result<Vec<Cancelled>, LedgerError> {
        let known = self.known(ids)?;
        self.require_changeable(ids)?;
        let cancel = |(id, known): (&MessageId, Option<Known>)| {
            let Some(Known { ended, .. }) = known else { return Cancelled::Unknown };
            match self.book.cancel(*id, self.now, self.group) {
                Cancelled::Unknown if ended.is_some() => Cancelled::Ended,
                known => known,
            }
        };
        Ok(ids.iter().zip(known).map(cancel).collect())
    }

    /// Read here and not before: until now a dead letter may have come back and died again.
    pub(super) fn requeue(self, batch: Vec<Requeue>) -> Result<Vec<Requeued>, LedgerError> {
        let edited = batch.iter().filter(|requeue| requeue.body.is_some());
        self.require_changeable(&edited.map(|requeue| requeue.id).collect::<Vec<_>>())?;
        let dead = |requeue: &Requeue| self.store.dead(requeue.id, self.book.salt);
        let dead: Result<Vec<_>, _> = batch.iter().map(dead).collect();
        let dead = dead.map_err(StoreError::on_reading)?;
        for message in dead.iter().flatten().map(|dead| &dead.message) {
            // It may have been forgotten since.
            if self.book.queues.get(message.queue).is_none() {
                let name = self.store.queue_name(message.queue).map_err(StoreError::on_reading)?;
                self.book.queues.recall(name, message.queue);
            }
        }
        let requeue = |(requeue, dead)| match dead {
            Some(dead) => self.book.requeue(dead, requeue, self.now, self.group),
            None => Requeued::NotDead,
        };
        Ok(batch.into_iter().zip(dead).map(requeue).collect())
    }

    pub(super) fn delete_dead(self, ids: &[MessageId]) -> Result<Vec<bool>, LedgerError> {
        let known = self.known(ids)?;
        self.require_changeable(ids)?;
        let delete = |(id, known): (&MessageId, Option<Known>)| {
            known.is_some_and(|known| known.ended == Some(Status::Dead))
                && self.book.delete_dead(id.seq(), self.group)
        };
        Ok(ids.iter().zip(known).map(delete).collect())
    }

    /// What can't be overwritten or removed is reported, and nothing of the change happens.
    fn require_changeable(&self, ids: &[MessageId]) -> Result<(), LedgerError> {
        let is_damaged = |id: &&MessageId| self.book.unchangeable.contains(&id.seq());
        ids.iter().find(is_damaged).map_or(Ok(()), |id| {
            let said = format!("message {id} can't be erased: a page of the ledger is damaged");
            Err(LedgerError::Corrupt(said))
        })
    }

    fn known(&self, ids: &[MessageId]) -> Result<Vec<Option<Known>>, LedgerError> {
        ids.iter().map(|id| self.known_one(*id)).collect::<Result<_, _>>().map_err(StoreError::on_reading)
    }

    /// None when there is no message of that very id.
    fn known_one(&self, id: MessageId) -> Result<Option<Known>, StoreError> {
        let seq = id.seq();
        if id.salt() != self.book.salt {
            return Ok(None);
        }
        let cached = self.book.bodies.get(seq).map(|row| Stub { at: row.at, ack_required: row.ack_required });
        let stub = match cached {
            None => self.store.stub(seq)?,
            cached => cached,
        };
        let Some(stub) = stub else { return Ok(None) };
        if MessageId::new(stub.at, seq, self.book.salt) != id {
            // Nobody's id, unless it is the row's time that is wrong.
            return self.store.require_sound(seq).map(|()| None);
        }
        let ended = if self.book.line.find(seq).is_none() { self.store.status_of(seq)? } else { None };
        Ok(Some(Known { stub, ended }))
    }
}

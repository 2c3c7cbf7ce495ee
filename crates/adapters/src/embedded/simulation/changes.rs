//! Random changes, each as the engine and as the model is asked for it.

use bytes::Bytes;
use tidegate_domain::limits::QuotaRule;
use tidegate_domain::limits::slot::{Calendar, SlotRule};
use tidegate_domain::{
    Admission, Clock, Due, EventId, Fingerprint, Headers, Idempotency, IdempotencyKey, Lane, MessageId,
    OnLimit, Outcome, QueueName, Recipient, Requeue, Reservation, Settlement, SlotConfigName, SlotMessage,
    Status,
};

use super::super::book::PURGE_MAX;
use super::super::engine::Change;
use super::random::Random;
use super::{QUEUES, World, queue, user};

impl World {
    /// The same change as each side names its messages.
    pub(super) fn random_change(&mut self, first: bool) -> (Change, Change) {
        match self.random.below(16) {
            0 => {
                let limit = 1 + u32::try_from(self.random.below(5)).unwrap();
                let exempts_high = self.random.below(2) == 0;
                let rule = QuotaRule { limit, window_ms: 3_000, exempts_high };
                let put = |user| Change::PutQuota { user, rule };
                let who = user(self.random.below(3));
                if self.random.below(5) == 0 {
                    return (Change::DeleteQuota(who.clone()), Change::DeleteQuota(who));
                }
                (put(who.clone()), put(who))
            }
            1 => {
                let change = self.random_slot_change();
                (change.clone(), change)
            }
            2..5 if !self.leases.is_empty() => {
                let lease = self.leases[self.random.pick(self.leases.len())];
                self.group.settled.push(lease[1].0);
                let outcome = match self.random.below(7) {
                    0 => Outcome::Retry { delay_ms: self.random.below(2_000), reason: "busy".into() },
                    1 => Outcome::Dead { reason: "refused".into() },
                    2 => Outcome::Released,
                    3 => Outcome::Expired,
                    5 => Outcome::Held { for_ms: self.random.below(2_000) },
                    4 => Outcome::Accepted { ack_within_ms: self.random.below(2_000) },
                    _ => Outcome::Delivered,
                };
                let settle = |(id, token): (MessageId, u64)| {
                    Change::Settle(vec![Settlement { id, token, outcome: outcome.clone(), latency_ms: 1 }])
                };
                (settle(lease[0]), settle(lease[1]))
            }
            5..11 => self.random_queue_change(first),
            _ => {
                let batch: Vec<_> = (0..=self.random.below(3)).map(|_| self.random_admission()).collect();
                (Change::Admit(batch.clone()), Change::Admit(batch))
            }
        }
    }

    /// What a group does not show to its own later changes is not asked of it here: a pop or a purge sees what was
    /// committed before, and so does who looks for a dead letter.
    fn random_queue_change(&mut self, first: bool) -> (Change, Change) {
        let name = queue(self.random.below(QUEUES));
        match self.random.below(8) {
            0 | 1 if first => {
                let pop = Change::Pop { queue: name, max: self.random.pick(4) };
                (pop.clone(), pop)
            }
            2 if first => self.purge_slice(name),
            3 => {
                let pause = Change::Pause { queue: name, paused: self.random.below(4) == 0 };
                (pause.clone(), pause)
            }
            4 => {
                let (ours, theirs) = self.pick_all(Status::Dead);
                self.group.requeued.extend(&theirs);
                (Change::DeleteDead(ours), Change::DeleteDead(theirs))
            }
            5 | 6 => {
                let (ours, theirs) = self.pick_all(Status::Dead);
                self.group.requeued.extend(&theirs);
                let edit = (self.random.below(3) == 0).then(|| Bytes::from("edited"));
                let delay_ms = [0, 0, 700][self.random.pick(3)];
                let of = |ids: Vec<MessageId>| {
                    Change::Requeue(
                        ids.into_iter().map(|id| Requeue { id, body: edit.clone(), delay_ms }).collect(),
                    )
                };
                (of(ours), of(theirs))
            }
            _ => {
                let (ours, theirs) = self.pick_all(Status::Pending);
                if self.random.below(2) == 0 {
                    (Change::Ack(ours), Change::Ack(theirs))
                } else {
                    (Change::Cancel(ours), Change::Cancel(theirs))
                }
            }
        }
    }

    /// A slice takes what it meets, in no particular order; the model is told what that is.
    fn purge_slice(&mut self, name: QueueName) -> (Change, Change) {
        let from = u32::try_from(self.random.below(6)).unwrap();
        self.sweep();
        let engine = self.engine.as_ref().unwrap();
        let book = engine.book();
        let met = book.queues.id(&name).map(|queue| book.line.some_of(queue, from, PURGE_MAX, u64::MAX).0);
        let waiting: Vec<_> = met.into_iter().flatten().filter(|seq| book.is_waiting(*seq)).collect();
        // Neither takes what a channel has accepted; a purge does not say so.
        let accepted =
            |seq: &u64| book.line.find(*seq).is_some_and(|slot| book.line.entry(slot).tries.acks > 0);
        let theirs = waiting
            .into_iter()
            .filter(|seq| !accepted(seq))
            .filter_map(|seq| self.ids.iter().find(|ids| ids[0].seq() == seq))
            .map(|ids| ids[1]);
        (Change::Purge { queue: name, from }, Change::Cancel(theirs.collect()))
    }

    /// Some messages, mostly such ones, perhaps one twice.
    fn pick_all(&mut self, status: Status) -> (Vec<MessageId>, Vec<MessageId>) {
        let mut picked = (Vec::new(), Vec::new());
        for _ in 0..=self.random.below(2) {
            let wanted = (self.random.below(5) > 0).then_some(status);
            let hidden = match status {
                Status::Dead => &self.group.settled,
                _ => &self.group.requeued,
            };
            let fits = |ids: &&[MessageId; 2]| {
                let known = self.model_record(ids[1]).is_some_and(|r| wanted.is_none_or(|w| r.status == w));
                known && !hidden.contains(&ids[1])
            };
            let fitting: Vec<_> = self.ids.iter().filter(fits).copied().collect();
            if fitting.is_empty() {
                continue;
            }
            let ids = fitting[self.random.pick(fitting.len())];
            // What retention has removed, the model still knows.
            if self.our_record(ids[0]).is_some() {
                picked.0.push(ids[0]);
                picked.1.push(ids[1]);
            }
        }
        picked
    }

    fn random_slot_change(&mut self) -> Change {
        let random = &mut self.random;
        let event = |random: &mut Random| EventId::new(&format!("event{}", random.below(12))).unwrap();
        match random.below(5) {
            0 => Change::PutSlotConfig(
                slot_config(random),
                SlotRule {
                    max_per_window: 1 + u32::try_from(random.below(3)).unwrap(),
                    window_ms: [700, 1_000][random.pick(2)],
                    headroom_windows: 20,
                    calendar: Calendar::default(),
                },
            ),
            1 if self.group.requeued.is_empty() => Change::Release(event(random)),
            _ => {
                self.bodies += 1;
                let message = (random.below(2) == 0).then(|| SlotMessage {
                    queue: queue(random.below(QUEUES)),
                    recipient: Some(Recipient::new(&format!("r{}", random.below(4))).unwrap()),
                    lane: Lane::ALL[random.pick(3)],
                    headers: Headers(vec![("n".to_owned(), self.bodies.to_string())]),
                    body: Bytes::from(format!("message {}", self.bodies)),
                });
                Change::Reserve(vec![Reservation {
                    event: event(random),
                    config: slot_config(random),
                    requested: self.clock.now().plus_ms(random.below(3_000)),
                    jitter: random.next(),
                    message,
                }])
            }
        }
    }

    fn random_admission(&mut self) -> Admission {
        self.bodies += 1;
        let body = Bytes::from(format!("message {}", self.bodies));
        let random = &mut self.random;
        let idempotency = (random.below(3) == 0).then(|| Idempotency {
            key: IdempotencyKey::new("sim", &random.below(6).to_string()),
            fingerprint: Fingerprint::of(&[random.below(2).to_string().as_bytes()]),
        });
        let expires = (random.below(4) == 0).then(|| self.clock.now().plus_ms(random.below(3_000)));
        let header = (random.below(4) == 0).then(|| ("trace".to_owned(), random.below(100).to_string()));
        Admission {
            queue: queue(random.below(QUEUES)),
            recipient: (random.below(4) > 0)
                .then(|| Recipient::new(&format!("r{}", random.below(4))).unwrap()),
            lane: Lane::ALL[random.pick(3)],
            due: if random.below(4) == 0 {
                Due::At(self.clock.now().plus_ms(random.below(3_000)))
            } else {
                Due::Now
            },
            body,
            charge: (random.below(2) == 0).then(|| user(random.below(3))),
            on_limit: if random.below(2) == 0 { OnLimit::Defer { horizon_ms: 9_000 } } else { OnLimit::Deny },
            idempotency,
            expires,
            headers: Headers(header.into_iter().collect()),
            ack_required: random.below(2) == 0,
        }
    }
}

/// Several, so that one is made after another was taken back; mostly the first, so that its windows fill.
fn slot_config(random: &mut Random) -> SlotConfigName {
    SlotConfigName::new(["sim", "sim", "sam", "sum"][random.pick(4)]).unwrap()
}

//! The engine without threads, on a clock and with crashes of the simulation's choosing, beside the model.
//!
//! Everything follows from a seed. A crash is a copy of the files at that instant, opened again: before the
//! commit, in the middle of it (a torn WAL), or after it and before anybody was answered. Then the ledger has
//! to be exactly what the model is that saw the committed groups and no others. `TIDEGATE_SEED` repeats one,
//! `TIDEGATE_SEEDS` runs that many.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tempfile::TempDir;
use tidegate_domain::limits::slot::{Calendar, SlotRule};
use tidegate_domain::{
    Admission, Admitted, Claim, ClaimRequest, Clock, Due, Durability, EventId, Fingerprint, Idempotency,
    IdempotencyKey, Lane, Ledger, MessageId, OnLimit, Outcome, QueueName, Recipient, Released, Reservation,
    Reserved, Settled, Settlement, Slot, SlotConfigName, SlotMessage, Slots, UserId,
};
use tidegate_testkit::{ModelLedger, Setup, TestClock};

use super::book::BookLimits;
use super::engine::{Change, Changed, Engine, EngineOptions};
use super::store::{self, FILE_NAME};

const SEEDS: u64 = 150;
const STEPS: usize = 60;
const PENDING_MAX: usize = 40;
const WINDOW_MS: u64 = 10_000;

#[test]
fn crashes_anywhere_leave_exactly_what_was_committed() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let seeds = match number("TIDEGATE_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("TIDEGATE_SEEDS").unwrap_or(SEEDS)).collect(),
    };
    let mut crashes = [0; 4];
    for seed in seeds {
        let run = std::panic::catch_unwind(|| World::new(seed).run());
        match run {
            Ok(seen) => crashes.iter_mut().zip(seen).for_each(|(all, seen)| *all += seen),
            Err(cause) => {
                eprintln!("TIDEGATE_SEED={seed} repeats this");
                std::panic::resume_unwind(cause);
            }
        }
    }
    assert!(crashes.iter().all(|&count| count > 0), "not every kind of crash was met: {crashes:?}");
}

/// How a group of changes ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Answered,
    /// Decided, not written.
    CrashBefore,
    /// Written, and the machine stopped while the WAL's tail was on its way to the disk.
    CrashTorn,
    /// Committed, nobody answered.
    CrashAfter,
    /// The disk was full: refused, and life goes on.
    Full,
}

struct World {
    random: Random,
    clock: Arc<TestClock>,
    model: ModelLedger,
    dir: TempDir,
    engine: Option<Engine>,
    /// Both sides' names of each live lease.
    leases: Vec<[(MessageId, u64); 2]>,
    bodies: u64,
    crashes: [u32; 4],
    runtime: tokio::runtime::Runtime,
}

impl World {
    fn new(seed: u64) -> Self {
        let clock = Arc::new(TestClock::default());
        let setup = Setup {
            clock: clock.clone(),
            pending_max: PENDING_MAX,
            idempotency_window_ms: WINDOW_MS,
            slots_max: 200,
            slot_retention_ms: 5_000,
        };
        let dir = tempfile::tempdir().unwrap();
        let engine = Some(open(dir.path(), &clock));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let random = Random(seed);
        let model = ModelLedger::new(setup);
        Self { random, clock, model, dir, engine, leases: Vec::new(), bodies: 0, crashes: [0; 4], runtime }
    }

    fn run(mut self) -> [u32; 4] {
        for _ in 0..STEPS {
            match self.random.below(10) {
                0..4 => self.change(),
                4..7 => self.claim(),
                7..9 => self.clock.advance_ms([1, 40, 900, 5_000][self.random.pick(4)]),
                _ => self.engine().sweep().unwrap(),
            }
            self.compare();
        }
        self.crashes
    }

    fn engine(&mut self) -> &mut Engine {
        self.engine.as_mut().unwrap()
    }

    fn change(&mut self) {
        let count = 1 + self.random.pick(4);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let (a, b) = self.random_change();
            ours.push(a);
            theirs.push(b);
        }
        let fate = match self.random.below(12) {
            0 => Fate::CrashBefore,
            1 => Fate::CrashTorn,
            2 => Fate::CrashAfter,
            3 => Fate::Full,
            _ => Fate::Answered,
        };
        match fate {
            Fate::Answered => {
                let ours = self.engine().change(ours).unwrap();
                let theirs = self.model_change(theirs);
                assert_eq!(without_ids(ours), without_ids(theirs));
            }
            Fate::Full => {
                let now = self.clock.now();
                let engine = self.engine();
                engine.book_mut().expire_leases(now);
                let (group, _) = engine.decide(ours, now);
                engine.book_mut().revert(group);
                self.crashes[3] += 1;
            }
            Fate::CrashBefore => {
                let now = self.clock.now();
                let engine = self.engine();
                let (group, _) = engine.decide(ours, now);
                engine.store().begin().unwrap();
                engine.store().write_rows(&group).unwrap();
                self.crash(0, |_| ());
            }
            Fate::CrashTorn => {
                let wal = wal_path(self.dir.path());
                let length = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
                let before = length(&wal);
                let _ = self.engine().change(ours).unwrap();
                let after = length(&wal);
                if after > before {
                    let cut = before + self.random.below(after - before);
                    self.crash(1, |wal| {
                        std::fs::File::options().write(true).open(wal).unwrap().set_len(cut).unwrap();
                    });
                } else {
                    // Nothing was written, so nothing is torn; or the WAL began anew, which this run never sees.
                    let _ = self.model_change(theirs);
                    self.crash(2, |_| ());
                }
            }
            Fate::CrashAfter => {
                let _ = self.engine().change(ours).unwrap();
                let _ = self.model_change(theirs);
                self.crash(2, |_| ());
            }
        }
    }

    /// Opens a copy of the files as they are now, and forgets the living.
    fn crash(&mut self, kind: usize, damage: impl FnOnce(&Path)) {
        self.crashes[kind] += 1;
        let copy = tempfile::tempdir().unwrap();
        for name in [FILE_NAME.to_owned(), format!("{FILE_NAME}-wal")] {
            let from = self.dir.path().join(&name);
            if from.exists() {
                std::fs::copy(from, copy.path().join(&name)).unwrap();
            }
        }
        damage(&wal_path(copy.path()));
        drop(self.engine.take());
        self.dir = copy;
        self.engine = Some(open(self.dir.path(), &self.clock));
        self.model.restart();
        self.leases.clear();
    }

    fn claim(&mut self) {
        let request = ClaimRequest {
            queue: queue(),
            max: 1 + self.random.pick(3),
            lease_ms: [30, 1_000, 60_000][self.random.pick(3)],
            wait_ms: 0,
        };
        let rows = self.engine().claim(&request.queue, request.max, request.lease_ms).unwrap();
        let theirs = self.runtime.block_on(self.model.claim(request)).unwrap();
        let body_of =
            |seq| store::read::messages(self.engine.as_ref().unwrap().store().connection(), &[seq]).unwrap();
        let ours: Vec<_> = rows
            .iter()
            .map(|row| {
                let stored = &body_of(row.leased.seq)[0];
                assert!(stored.head_sound && stored.body_sound);
                (stored.row.body.clone(), row.leased.attempt, row.leased.until, stored.row.at)
            })
            .collect();
        let expected: Vec<_> = theirs
            .iter()
            .map(|claim| (claim.body.clone().unwrap(), claim.attempt, claim.lease_until, claim.admitted_at))
            .collect();
        assert_eq!(ours, expected);
        let salt = self.engine().book().salt;
        for (row, Claim { id, token, .. }) in rows.iter().zip(theirs) {
            let our_id = MessageId::new(self.clock.now(), row.leased.seq, salt);
            self.leases.push([(our_id, row.leased.token), (id, token)]);
        }
    }

    fn compare(&mut self) {
        self.engine().sweep().unwrap();
        self.runtime.block_on(self.model.sweep()).unwrap();
        let theirs = self.runtime.block_on(self.model.counts()).unwrap();
        assert_eq!(self.engine().counts(), theirs);
        assert!(theirs.balanced());
        for event in (0..12).map(|n| EventId::new(&format!("event{n}")).unwrap()) {
            let theirs = self.runtime.block_on(self.model.slot(event.clone())).unwrap();
            assert_eq!(self.engine().slot(event).map(slot_text), theirs.map(slot_text));
        }
        for user in (0..3).map(user) {
            let theirs = self.runtime.block_on(self.model.quota(user.clone())).unwrap();
            assert_eq!(self.engine().quota(&user), theirs, "{user}");
        }
    }

    fn random_change(&mut self) -> (Change, Change) {
        match self.random.below(10) {
            0 => {
                let limit = 1 + u32::try_from(self.random.below(5)).unwrap();
                let put = |user| Change::PutQuota { user, limit, window_ms: 3_000 };
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
            2..4 if !self.leases.is_empty() => {
                let lease = self.leases[self.random.pick(self.leases.len())];
                let outcome = match self.random.below(5) {
                    0 => Outcome::Retry { delay_ms: self.random.below(2_000), reason: "busy".into() },
                    1 => Outcome::Dead { reason: "refused".into() },
                    2 => Outcome::Released,
                    3 => Outcome::Expired,
                    _ => Outcome::Delivered,
                };
                let settle = |(id, token): (MessageId, u64)| {
                    Change::Settle(vec![Settlement { id, token, outcome: outcome.clone(), latency_ms: 1 }])
                };
                (settle(lease[0]), settle(lease[1]))
            }
            _ => {
                let batch: Vec<_> = (0..=self.random.below(3)).map(|_| self.random_admission()).collect();
                (Change::Admit(batch.clone()), Change::Admit(batch))
            }
        }
    }

    fn random_slot_change(&mut self) -> Change {
        let random = &mut self.random;
        let event = |random: &mut Random| EventId::new(&format!("event{}", random.below(12))).unwrap();
        match random.below(6) {
            0 => Change::PutSlotConfig(
                SlotConfigName::new("sim").unwrap(),
                SlotRule {
                    max_per_window: 1 + u32::try_from(random.below(3)).unwrap(),
                    window_ms: [700, 1_000][random.pick(2)],
                    headroom_windows: 20,
                    calendar: Calendar::default(),
                },
            ),
            1 => Change::Release(event(random)),
            _ => {
                self.bodies += 1;
                let message = (random.below(2) == 0).then(|| SlotMessage {
                    queue: queue(),
                    recipient: Some(Recipient::new(&format!("r{}", random.below(4))).unwrap()),
                    lane: Lane::ALL[random.pick(3)],
                    body: Bytes::from(format!("message {}", self.bodies)),
                });
                Change::Reserve(vec![Reservation {
                    event: event(random),
                    config: SlotConfigName::new("sim").unwrap(),
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
        Admission {
            queue: queue(),
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
            expires: None,
            headers: tidegate_domain::Headers::default(),
            ack_required: false,
        }
    }

    fn model_change(&self, changes: Vec<Change>) -> Vec<Changed> {
        let apply = |change| {
            self.runtime.block_on(async {
                match change {
                    Change::Admit(batch) => Changed::Admitted(self.model.admit(batch).await.unwrap()),
                    Change::Settle(batch) => Changed::Settled(self.model.settle(batch).await.unwrap()),
                    Change::DeleteQuota(user) => {
                        Changed::Deleted(self.model.delete_quota(user).await.unwrap())
                    }
                    Change::PutQuota { user, limit, window_ms } => {
                        Changed::Quota(self.model.put_quota(user, limit, window_ms).await.unwrap())
                    }
                    Change::Reserve(batch) => Changed::Reserved(self.model.reserve(batch).await.unwrap()),
                    Change::Release(event) => Changed::Released(self.model.release(event).await.unwrap()),
                    Change::PutSlotConfig(name, rule) => {
                        Changed::SlotConfig(self.model.put_slot_config(name, rule).await.unwrap())
                    }
                    other => panic!("not simulated: {other:?}"),
                }
            })
        };
        changes.into_iter().map(apply).collect()
    }
}

fn open(dir: &Path, clock: &Arc<TestClock>) -> Engine {
    let limits = BookLimits {
        pending_max: PENDING_MAX as u64,
        body_cache_bytes: 600,
        idempotency_window_ms: WINDOW_MS,
        idempotency_keys_max: 1_000,
        slots_max: 200,
        slot_retention_ms: 5_000,
    };
    let queues = super::queues::QueueRules::default();
    let options = EngineOptions { sync: Durability::OsBuffer, limits, queues, retention_ms: 20_000 };
    Engine::open(dir, options, clock.clone()).unwrap()
}

fn wal_path(dir: &Path) -> std::path::PathBuf {
    dir.join(format!("{FILE_NAME}-wal"))
}

fn queue() -> QueueName {
    QueueName::new("sim").unwrap()
}

fn user(number: u64) -> UserId {
    UserId::new(&format!("user{number}")).unwrap()
}

/// Each side names messages its own way.
fn without_ids(changed: Vec<Changed>) -> Vec<Vec<String>> {
    let text = |changed| match changed {
        Changed::Admitted(admitted) => admitted.iter().map(admission_text).collect(),
        Changed::Settled(settled) => settled.iter().map(|settled: &Settled| format!("{settled:?}")).collect(),
        Changed::Quota(quota) => vec![format!("{quota:?}")],
        Changed::Deleted(deleted) => vec![format!("{deleted}")],
        Changed::Reserved(reserved) => reserved.into_iter().map(reserved_text).collect(),
        Changed::Released(Released::Released(slot)) => vec![format!("released {}", slot_text(slot))],
        Changed::Released(Released::Used(slot)) => vec![format!("used {}", slot_text(slot))],
        Changed::Released(Released::UnknownEvent) => vec!["unknown".into()],
        Changed::SlotConfig(put) => vec![format!("{put:?}")],
        other => panic!("not simulated: {other:?}"),
    };
    changed.into_iter().map(text).collect()
}

fn reserved_text(reserved: Reserved) -> String {
    match reserved {
        Reserved::Assigned(slot) => format!("assigned {}", slot_text(slot)),
        Reserved::Existing(slot) => format!("existing {}", slot_text(slot)),
        refused => format!("{refused:?}"),
    }
}

fn slot_text(slot: Slot) -> String {
    let with_message = slot.message.is_some();
    format!("{:?} {with_message}", Slot { message: None, ..slot })
}

fn admission_text(admitted: &Admitted) -> String {
    match admitted {
        Admitted::Admitted { at, quota, .. } => format!("admitted {at:?} {quota:?}"),
        Admitted::Deferred { at, due, quota, .. } => format!("deferred {at:?} {due:?} {quota:?}"),
        Admitted::Duplicate { at, .. } => format!("duplicate {at:?}"),
        Admitted::KeyConflict { .. } => "conflict".into(),
        refused => format!("{refused:?}"),
    }
}

/// SplitMix64: a dozen lines that repeat for ever.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn pick(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }
}

//! The engine without threads, on a clock and with crashes of the simulation's choosing, beside the model.
//!
//! Everything follows from a seed. A crash is a copy of the files at that instant, opened again: before the
//! commit, in the middle of it (a torn WAL), or after it and before anybody was answered. Then the ledger has
//! to be exactly what the model is that saw the committed groups and no others.

use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use tidegate_domain::{
    Begun, Claim, ClaimRequest, Clock, Durability, Extension, Ledger, MessageId, Order, QueueName, QueueRule,
    Queues, Transit, UserId,
};
use tidegate_testkit::seeds::each_seed;
use tidegate_testkit::{ModelLedger, Setup, TestClock};

use super::book::BookLimits;
use super::engine::{Change, Changed, Engine, EngineOptions, Way};
use super::store::progress::SUFFIX;
use super::store::{FILE_NAME, Store};

mod answers;
mod beside;
mod changes;
mod parties;
mod random;

use answers::claim_text;
use random::Random;

const SEEDS: u32 = 150;
const STEPS: usize = 60;
const PENDING_MAX: usize = 40;
const WINDOW_MS: u64 = 10_000;
const RETENTION_MS: u64 = 20_000;
/// Longer than most steps of the clock, and shorter than the longest.
const FORGET_AFTER_MS: u64 = 4_000;
/// A few messages: claims and pops end by it too.
const BATCH_BYTES_MAX: usize = 44;
/// A strict one, one without order, one with little room, and one more that no setting names.
const QUEUES: u64 = 4;

#[test]
fn crashes_anywhere_leave_exactly_what_was_committed() {
    let (mut runs, mut crashes) = (0, [0; 4]);
    each_seed(SEEDS, |seed| {
        let seen = World::new(seed).run();
        crashes.iter_mut().zip(seen).for_each(|(all, seen)| *all += seen);
        runs += 1;
    });
    let enough = runs < SEEDS || crashes.iter().all(|&count| count > 0);
    assert!(enough, "not every kind of crash was met: {crashes:?}");
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
    /// Both sides' names of each message that was answered.
    ids: Vec<[MessageId; 2]>,
    group: Touched,
    bodies: u64,
    crashes: [u32; 4],
    runtime: tokio::runtime::Runtime,
}

/// Messages by the model's name that the group in the making has done something to.
#[derive(Default)]
struct Touched {
    settled: Vec<MessageId>,
    /// Or deleted for good.
    requeued: Vec<MessageId>,
}

impl World {
    fn new(seed: u64) -> Self {
        let clock = Arc::new(TestClock::default());
        let setup = Setup {
            clock: clock.clone(),
            pending_max: PENDING_MAX,
            pending_hard_max: PENDING_MAX + 2,
            idempotency_window_ms: WINDOW_MS,
            slots_max: 200,
            slot_retention_ms: 5_000,
            batch_bytes_max: BATCH_BYTES_MAX,
            queue_rules: queue_rules(),
            queue_forget_after_ms: FORGET_AFTER_MS,
        };
        let dir = tempfile::tempdir().unwrap();
        let engine = Some(open(dir.path(), &clock));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let random = Random(seed);
        let model = ModelLedger::new(setup);
        Self {
            random,
            clock,
            model,
            dir,
            engine,
            leases: Vec::new(),
            ids: Vec::new(),
            group: Touched::default(),
            bodies: 0,
            crashes: [0; 4],
            runtime,
        }
    }

    fn run(mut self) -> [u32; 4] {
        for _ in 0..STEPS {
            match self.random.below(15) {
                0..6 => self.change(),
                6..9 => self.claim(),
                9 => self.extend(),
                10..12 => self.begin(),
                12..14 => {
                    // And nobody sweeps before the next step: what is over by now must be over for that.
                    self.clock.advance_ms([1, 40, 900, 5_000][self.random.pick(4)]);
                    continue;
                }
                _ => self.sweep(),
            }
            self.compare();
        }
        self.compare_records();
        self.crashes
    }

    fn engine(&mut self) -> &mut Engine {
        self.engine.as_mut().unwrap()
    }

    fn change(&mut self) {
        let count = 1 + self.random.pick(4);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        self.group = Touched::default();
        for n in 0..count {
            let (a, b) = self.random_change(n == 0);
            ours.push(a);
            theirs.push(b);
        }
        let fate = match self.random.below(12) {
            0 => Fate::CrashBefore,
            1 => Fate::CrashTorn,
            2 => Fate::CrashAfter,
            3 => Fate::Full,
            // Whatever a pop took has to be put back, and a configuration that was made must go.
            4..6 if matches!(ours[0], Change::Pop { .. }) => Fate::Full,
            4..8 if ours.iter().any(|change| matches!(change, Change::PutSlotConfig(..))) => Fate::Full,
            _ => Fate::Answered,
        };
        match fate {
            Fate::Answered => {
                self.change_both(ours, theirs);
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
                let progress = self.dir.path().join(format!("{FILE_NAME}{SUFFIX}"));
                // Written after the commit is synced: a torn commit has left nothing there.
                let progress_before = std::fs::read(&progress).unwrap();
                let (ours, written) = self.engine().change(ours).unwrap();
                self.engine().apply(written);
                let after = length(&wal);
                if after > before {
                    let cut = before + self.random.below(after - before);
                    std::fs::write(&progress, progress_before).unwrap();
                    self.crash(1, |wal| {
                        std::fs::File::options().write(true).open(wal).unwrap().set_len(cut).unwrap();
                    });
                } else {
                    // Nothing was written, so nothing is torn; or the WAL began anew, which this run never sees.
                    self.model_change_beside(ours, theirs);
                    self.crash(2, |_| ());
                }
            }
            Fate::CrashAfter => {
                self.change_both(ours, theirs);
                self.crash(2, |_| ());
            }
        }
    }

    /// Opens a copy of the files as they are now, and forgets the living.
    fn crash(&mut self, kind: usize, damage: impl FnOnce(&Path)) {
        self.crashes[kind] += 1;
        let copy = tempfile::tempdir().unwrap();
        for name in [FILE_NAME.to_owned(), format!("{FILE_NAME}-wal"), format!("{FILE_NAME}{SUFFIX}")] {
            let from = self.dir.path().join(&name);
            if from.exists() {
                std::fs::copy(from, copy.path().join(&name)).unwrap();
            }
        }
        damage(&wal_path(copy.path()));
        // A crash is no reason to refuse a start.
        assert!(Store::is_whole(&copy.path().join(FILE_NAME)));
        drop(self.engine.take());
        self.dir = copy;
        self.engine = Some(open(self.dir.path(), &self.clock));
        self.model.restart();
        self.leases.clear();
        self.compare_records();
    }

    fn claim(&mut self) {
        let request = ClaimRequest {
            queue: queue(self.random.below(QUEUES)),
            max: 1 + self.random.pick(3),
            lease_ms: [30, 1_000, 60_000][self.random.pick(3)],
            wait_ms: 0,
        };
        let way = match self.random.below(2) {
            0 => Way::Attempt,
            _ => Way::Transit { in_transit_max: self.random.pick(5) },
        };
        let rows = self.engine().claim(&request, way).unwrap().rows;
        let theirs = match way {
            Way::Attempt => self.runtime.block_on(self.model.claim(request)),
            Way::Transit { in_transit_max } => {
                self.runtime.block_on(self.model.dispatch(request, in_transit_max))
            }
        };
        let theirs = theirs.unwrap();
        let leases: Vec<_> =
            rows.iter().map(|row| (row.leased.seq, row.leased.token, row.leased.until)).collect();
        assert_eq!(self.our_text(Changed::Popped(rows)), theirs.iter().map(claim_text).collect::<Vec<_>>());
        let salt = self.engine().book().salt;
        for ((seq, our_token, until), Claim { id, token, lease_until, .. }) in leases.into_iter().zip(theirs)
        {
            assert_eq!(until, lease_until);
            let our_id = MessageId::new(self.clock.now(), seq, salt);
            self.leases.push([(our_id, our_token), (id, token)]);
        }
    }

    fn extend(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let [ours, theirs] = self.leases[self.random.pick(self.leases.len())];
        let lease_ms = [0, 30, 1_000, 60_000][self.random.pick(4)];
        let of = |(id, token)| Extension { id, token, lease_ms };
        let theirs = self.runtime.block_on(self.model.extend(vec![of(theirs)])).unwrap();
        assert_eq!(self.engine().extend(&of(ours)), theirs[0]);
    }

    /// Mostly with one of the latest leases, which may be in transit.
    fn begin(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let latest = self.leases.len() - 1;
        let [ours, theirs] = self.leases[latest - self.random.pick(self.leases.len().min(4))];
        let lease_ms = [30, 1_000, 60_000][self.random.pick(3)];
        let of = |(id, token)| Extension { id, token, lease_ms };
        let begun = self.runtime.block_on(self.model.begin(vec![of(theirs)])).unwrap()[0];
        match (self.engine().begin_attempt(&of(ours)), begun) {
            (
                Begun::Begun { token: our_token, lease_until },
                Begun::Begun { token, lease_until: their_until },
            ) => {
                assert!(our_token > ours.1, "{our_token} after {}", ours.1);
                assert_eq!(lease_until, their_until);
                self.leases.push([(ours.0, our_token), (theirs.0, token)]);
            }
            (ours, theirs) => assert_eq!(ours, theirs),
        }
    }
}

fn open(dir: &Path, clock: &Arc<TestClock>) -> Engine {
    let limits = BookLimits {
        pending_max: PENDING_MAX as u64,
        pending_hard_max: PENDING_MAX as u64 + 2,
        body_cache_bytes: 600,
        idempotency_window_ms: WINDOW_MS,
        idempotency_keys_max: 1_000,
        slots_max: 200,
        slot_retention_ms: 5_000,
        batch_bytes_max: BATCH_BYTES_MAX,
        queue_forget_after_ms: FORGET_AFTER_MS,
    };
    let by_name = queue_rules().into_iter().collect();
    let queues = super::queues::QueueRules { by_name, ..Default::default() };
    let options = EngineOptions { sync: Durability::OsBuffer, limits, queues, retention_ms: RETENTION_MS };
    Engine::open(&dir.join(FILE_NAME), options, clock.clone()).unwrap()
}

fn wal_path(dir: &Path) -> std::path::PathBuf {
    dir.join(format!("{FILE_NAME}-wal"))
}

fn queue(number: u64) -> QueueName {
    QueueName::new(&format!("queue{number}")).unwrap()
}

fn queue_rules() -> Vec<(QueueName, QueueRule)> {
    let loose = QueueRule { order: Order::BestEffort, ..QueueRule::default() };
    let narrow = QueueRule { pending_max: 4, pending_hard_max: 6, ..QueueRule::default() };
    vec![(queue(1), loose), (queue(2), narrow)]
}

fn user(number: u64) -> UserId {
    UserId::new(&format!("user{number}")).unwrap()
}

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use bytes::Bytes;
use tempfile::TempDir;
use tidegate_domain::{Admission, Durability, MessageId};
use tidegate_testkit::TestClock;

use super::super::book::BookLimits;
use super::super::engine::EngineOptions;
use super::super::queues::QueueRules;
use super::*;

fn writer() -> (TempDir, Writer) {
    let limits = BookLimits {
        pending_max: 100,
        pending_hard_max: 100,
        body_cache_bytes: 1_000,
        idempotency_window_ms: 0,
        idempotency_keys_max: 0,
        slots_max: 0,
        slot_retention_ms: 0,
        batch_bytes_max: usize::MAX,
        queue_forget_after_ms: u64::MAX,
    };
    let queues = QueueRules::default();
    let options = EngineOptions { sync: Durability::OsBuffer, limits, queues, retention_ms: 60_000 };
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(&dir.path().join("ledger.db"), options, Arc::new(TestClock::new())).unwrap();
    let writer = Writer::new(engine, sync_channel(1).1, 100, watch::channel(Health::Ready).0, Arc::default());
    (dir, writer)
}

fn queue() -> QueueName {
    QueueName::new("q").unwrap()
}

impl Writer {
    fn admit(&mut self, count: usize) {
        let admission = Admission::new(queue(), Bytes::from_static(b"text"));
        let (_, written) = self.engine.change(vec![Change::Admit(vec![admission; count])]).unwrap();
        self.engine.apply(written);
    }

    /// A dispatch where one may be in transit.
    fn dispatch(&mut self, wait_ms: u64) -> Answer<Claimed> {
        let (reply, answer) = oneshot::channel();
        let request = ClaimRequest { queue: queue(), max: 9, lease_ms: 60_000, wait_ms };
        self.answer(Command::Claim(request, Way::Transit { in_transit_max: 1 }, reply)).unwrap();
        answer
    }
}

fn beginning(writer: &Writer, claimed: &Claimed) -> Extension {
    let leased = &claimed.rows[0].leased;
    let id = MessageId::new(Timestamp::default(), leased.seq, writer.engine.book().salt);
    Extension { id, token: leased.token, lease_ms: 60_000 }
}

#[test]
fn no_attempt_begins_that_could_not_be_settled() {
    let (_dir, mut writer) = writer();
    writer.admit(1);
    let claimed = writer.dispatch(0).try_recv().unwrap().unwrap();
    let batch = [beginning(&writer, &claimed)];
    writer.set_health(Health::ReadOnly("no room".into()));
    assert_eq!(writer.begin(&batch), Err(LedgerError::NoSpace("no room".into())));
    writer.set_health(Health::Ready);
    assert!(matches!(writer.begin(&batch).unwrap()[..], [Begun::Begun { .. }]));
}

/// A pop is small enough for what room a full disk has left; it is refused like every other change nevertheless.
#[test]
fn no_message_is_popped_while_the_ledger_takes_no_writes() {
    let (_dir, mut writer) = writer();
    writer.admit(1);
    let mut pop = |health| {
        writer.set_health(health);
        let (reply, mut answer) = oneshot::channel();
        let mut gathered = Gathered::default();
        gathered.add(Command::Change(Change::Pop { queue: queue(), max: 1 }, reply));
        writer.step(gathered).unwrap();
        answer.try_recv().unwrap()
    };
    let refused = pop(Health::ReadOnly("no room".into()));
    assert!(matches!(&refused, Err(LedgerError::NoSpace(reason)) if reason == "no room"), "{refused:?}");
    let popped = pop(Health::Ready);
    assert!(matches!(&popped, Ok(Changed::Popped(rows)) if rows.len() == 1), "{popped:?}");
}

#[test]
fn who_waits_for_room_in_transit_does_not_keep_the_writer_awake() {
    let (_dir, mut writer) = writer();
    writer.engine.sweep().unwrap();
    writer.admit(2);
    let claimed = writer.dispatch(0).try_recv().unwrap().unwrap();
    let mut waiting = writer.dispatch(50_000);
    assert_eq!(writer.pause(), TICK);
    writer.begin(&[beginning(&writer, &claimed)]).unwrap();
    writer.serve_waiters().unwrap();
    assert_eq!(waiting.try_recv().unwrap().unwrap().rows.len(), 1);
}

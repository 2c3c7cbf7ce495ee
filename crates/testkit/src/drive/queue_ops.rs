use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;
use tidegate_domain::{Lane, Outcome, Status};

use super::op::{Admit, Op, Settle, admit, advance_ms, put_quota, settle};
use super::queues::{Pick, QueueOp};
use super::transit::transit_op;

/// Two strict ones, one without order, one with little room.
const QUEUES: u8 = 4;

/// Sequences in which consumers pop and ack, people cancel, requeue and purge, and time runs out.
pub fn queue_ops(length_max: usize) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        9 => vec(expiring_admit(), 1..6).prop_map(Op::Admit),
        7 => (0..QUEUES, select(vec![1usize, 2, 3, 12]), select(vec![50, 1_000, 30_000]))
            .prop_map(|(queue, max, lease_ms)| Op::Claim { queue, max, lease_ms }),
        6 => vec(settle_or_accept(), 1..5).prop_map(Op::Settle),
        4 => (vec(settle_or_accept(), 1..5), select(vec![50, 1_000, 30_000]))
            .prop_map(|(batch, lease_ms)| Op::Advance { batch, lease_ms }),
        7 => transit_op(QUEUES),
        4 => advance_ms().prop_map(Op::AdvanceMs),
        1 => put_quota(),
        20 => queue_op().prop_map(Op::Queues),
        4 => Just(Op::Reopen),
        1 => Just(Op::Sweep),
    ];
    vec(op, 1..length_max)
}

fn queue_op() -> impl Strategy<Value = QueueOp> {
    let dead = || picks(Status::Dead);
    let pending = || picks(Status::Pending);
    let requeue = (pick(Status::Dead), weighted(0.3, 0..9u8), select(vec![0, 0, 50, 1_000]));
    prop_oneof![
        4 => (0..QUEUES, select(vec![0usize, 1, 2, 5])).prop_map(|(queue, max)| QueueOp::Pop { queue, max }),
        4 => (0..QUEUES, vec(0..3u8, 1..4), select(vec![0usize, 1, 9]), select(vec![50, 1_000, 30_000]))
            .prop_map(|(queue, recipients, max, lease_ms)| {
                QueueOp::PickUp { queue, recipients, max, lease_ms }
            }),
        2 => (0..6usize, select(vec![0, 10, 1_000, 60_000]))
            .prop_map(|(lease_back, lease_ms)| QueueOp::Extend { lease_back, lease_ms }),
        4 => pending().prop_map(QueueOp::Ack),
        2 => dead().prop_map(QueueOp::Ack),
        1 => picks(Status::Expired).prop_map(QueueOp::Ack),
        3 => pending().prop_map(QueueOp::Cancel),
        10 => vec(requeue, 1..4).prop_map(QueueOp::Requeue),
        1 => dead().prop_map(QueueOp::DeleteDead),
        1 => (0..QUEUES).prop_map(|queue| QueueOp::Purge { queue }),
        2 => (0..QUEUES, weighted(0.3, Just(())))
            .prop_map(|(queue, paused)| QueueOp::Pause { queue, paused: paused.is_some() }),
        3 => list(),
    ]
}

fn list() -> impl Strategy<Value = QueueOp> {
    let statuses = vec![Status::Pending, Status::Delivered, Status::Dead, Status::Expired, Status::Deleted];
    (
        weighted(0.4, 0..QUEUES),
        weighted(0.5, select(statuses)),
        weighted(0.2, Just(())),
        (weighted(0.3, 0..4u8), weighted(0.2, 0..3u8)),
        weighted(0.2, select(Lane::ALL.to_vec())),
        weighted(0.2, 0..20usize),
        weighted(0.2, 0..40usize),
        select(vec![1usize, 2, 5, 100]),
    )
        .prop_map(|(queue, status, ended, (recipient, user), lane, from, to, max)| QueueOp::List {
            queue,
            status,
            ended: ended.is_some(),
            recipient,
            user,
            lane,
            from,
            to,
            max,
        })
}

/// Mostly those that are so; sometimes any, and sometimes one twice.
fn picks(status: Status) -> impl Strategy<Value = Vec<Pick>> {
    vec(pick(status), 1..4)
}

fn pick(status: Status) -> impl Strategy<Value = Pick> {
    (weighted(0.8, Just(status)), 0..8usize).prop_map(|(status, n)| Pick { status, n })
}

fn expiring_admit() -> impl Strategy<Value = Admit> {
    let expires_in_ms = weighted(0.3, select(vec![0, 40, 100, 1_000, 30_000]));
    // Fewer recipients than elsewhere: chains of some length.
    let recipient = weighted(0.8, 0..2u8);
    (admit(), 0..QUEUES, recipient, expires_in_ms, weighted(0.3, 0..3u8), any::<bool>()).prop_map(
        |(admit, queue, recipient, expires_in_ms, header, ack_required)| Admit {
            queue,
            recipient,
            expires_in_ms,
            header,
            ack_required,
            ..admit
        },
    )
}

/// More deaths than usual, so that there is something to requeue, and channels that only accept.
fn settle_or_accept() -> impl Strategy<Value = Settle> {
    let accepted = select(vec![0, 50, 1_000]).prop_map(|ack_within_ms| Outcome::Accepted { ack_within_ms });
    let dead = Just(Outcome::Dead { reason: "refused".into() });
    prop_oneof![
        2 => settle(),
        2 => (settle(), accepted).prop_map(|(settle, outcome)| Settle { outcome, ..settle }),
        2 => (settle(), dead).prop_map(|(settle, outcome)| Settle { outcome, ..settle }),
    ]
}

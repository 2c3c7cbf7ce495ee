use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tidegate_domain::{Lane, Outcome};

use super::queues::QueueOp;
use super::slots::SlotOp;
use super::transit::{TransitOp, transit_op};

/// Few of everything, so that operations meet: users, recipients, keys, queues are small numbers.
#[derive(Debug, Clone)]
pub enum Op {
    Admit(Vec<Admit>),
    Claim {
        queue: u8,
        max: usize,
        lease_ms: u64,
    },
    Settle(Vec<Settle>),
    /// Settles, and takes the recipients' next messages along.
    Advance {
        batch: Vec<Settle>,
        lease_ms: u64,
    },
    AdvanceMs(u64),
    PutQuota {
        user: u8,
        limit: u32,
        window_ms: u64,
        exempts_high: bool,
    },
    DeleteQuota {
        user: u8,
    },
    ListQuotas {
        max: usize,
    },
    Slots(SlotOp),
    Queues(QueueOp),
    Transit(TransitOp),
    /// Leases are void, everything answered stays.
    Reopen,
    Sweep,
}

#[derive(Debug, Clone)]
pub struct Admit {
    pub queue: u8,
    pub recipient: Option<u8>,
    pub lane: Lane,
    /// From now; negative lies in the past.
    pub due_in_ms: Option<i64>,
    pub user: Option<u8>,
    pub key: Option<u8>,
    pub body: u8,
    /// Deferred when the quota is used up, up to this horizon.
    pub defer_ms: Option<u64>,
    pub expires_in_ms: Option<u64>,
    pub header: Option<u8>,
    pub ack_required: bool,
}

#[derive(Debug, Clone)]
pub struct Settle {
    /// Which lease, counted back from the latest one handed out: small numbers are mostly current, large ones
    /// stale.
    pub lease_back: usize,
    pub outcome: Outcome,
    pub latency_ms: u64,
}

pub(super) fn put_quota() -> impl Strategy<Value = Op> {
    (0..3u8, 1..6u32, select(vec![1, 100, 60_000]), any::<bool>()).prop_map(
        |(user, limit, window_ms, exempts_high)| Op::PutQuota { user, limit, window_ms, exempts_high },
    )
}

/// Sequences that admit, claim and settle a lot, and jump in time now and then.
pub fn ops(length_max: usize) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => vec(admit(), 1..6).prop_map(Op::Admit),
        8 => (0..2u8, select(vec![0usize, 1, 2, 3, 12]), select(vec![0, 50, 1_000, 30_000]))
            .prop_map(|(queue, max, lease_ms)| Op::Claim { queue, max, lease_ms }),
        6 => vec(settle(), 1..5).prop_map(Op::Settle),
        4 => (vec(settle(), 1..5), select(vec![50, 1_000, 30_000]))
            .prop_map(|(batch, lease_ms)| Op::Advance { batch, lease_ms }),
        8 => transit_op(2),
        4 => advance_ms().prop_map(Op::AdvanceMs),
        2 => put_quota(),
        1 => prop_oneof![
            (0..3u8).prop_map(|user| Op::DeleteQuota { user }),
            (0..4usize).prop_map(|max| Op::ListQuotas { max }),
        ],
        1 => Just(Op::Reopen),
        1 => Just(Op::Sweep),
    ];
    vec(op, 1..length_max)
}

pub(super) fn admit() -> impl Strategy<Value = Admit> {
    let due_in_ms = prop_oneof![4 => Just(None), 1 => select(vec![-500, 0, 50, 1_000]).prop_map(Some)];
    let recipient = proptest::option::weighted(0.7, 0..4u8);
    let user = proptest::option::weighted(0.4, 0..3u8);
    let key = proptest::option::weighted(0.3, 0..5u8);
    let defer_ms = proptest::option::weighted(0.3, select(vec![0, 100, 1_000, 300_000]));
    (0..2u8, recipient, select(Lane::ALL.to_vec()), due_in_ms, user, key, 0..3u8, defer_ms).prop_map(
        |(queue, recipient, lane, due_in_ms, user, key, body, defer_ms)| Admit {
            queue,
            recipient,
            lane,
            due_in_ms,
            user,
            key,
            body,
            defer_ms,
            expires_in_ms: None,
            header: None,
            ack_required: false,
        },
    )
}

pub(super) fn settle() -> impl Strategy<Value = Settle> {
    let outcome = prop_oneof![
        5 => Just(Outcome::Delivered),
        3 => select(vec![0, 50, 1_000])
            .prop_map(|delay_ms| Outcome::Retry { delay_ms, reason: "busy".into() }),
        1 => Just(Outcome::Dead { reason: "no such number".into() }),
        1 => Just(Outcome::Expired),
        1 => Just(Outcome::GivenUp { reason: "gave up".into() }),
        1 => Just(Outcome::Released),
        1 => select(vec![0, 50, 1_000]).prop_map(|for_ms| Outcome::Held { for_ms }),
    ];
    (0..12usize, outcome, 0..100u64).prop_map(|(lease_back, outcome, latency_ms)| Settle {
        lease_back,
        outcome,
        latency_ms,
    })
}

/// Mostly within leases, delays and windows; sometimes exactly at their ends; seldom past the key window.
pub(super) fn advance_ms() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..120u64,
        3 => select(vec![50, 100, 1_000, 30_000, 60_000]),
        1 => Just(24 * 60 * 60 * 1_000),
    ]
}

//! Drives a bus with random publications, receptions and departures, and looks for records that are lost or invented.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use proptest::prelude::*;
use tidegate_domain::{Bus, Claim, Consumer, Lane, MessageId};
use tokio::time::timeout;

use super::harness::{claim, queue, receive_some};
use super::{BusBackend, BusHarness};
use crate::HANG;
use crate::seeds::property;

const OPS_MAX: usize = 20;
const CONSUMERS: usize = 2;
const WAIT_MS: u64 = 50;

#[derive(Debug, Clone)]
pub enum BusOp {
    /// One record for each recipient.
    Publish {
        lane: Lane,
        recipients: Vec<u8>,
    },
    /// A record that no gateway has written.
    Foreign(Vec<u8>),
    Receive {
        consumer: usize,
        max: usize,
    },
    /// A reception that is given up half-way.
    GiveUp {
        consumer: usize,
    },
    Done {
        consumer: usize,
    },
    /// The consumer goes without a word. The next operation that needs it joins anew.
    Leave {
        consumer: usize,
    },
}

fn ops() -> impl Strategy<Value = Vec<BusOp>> {
    let lane = prop_oneof![Just(Lane::High), Just(Lane::Normal), Just(Lane::Low)];
    let consumer = || 0..CONSUMERS;
    let op = prop_oneof![
        5 => (lane, prop::collection::vec(0..5u8, 1..12))
            .prop_map(|(lane, recipients)| BusOp::Publish { lane, recipients }),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(BusOp::Foreign),
        6 => (consumer(), 1..15usize).prop_map(|(consumer, max)| BusOp::Receive { consumer, max }),
        1 => consumer().prop_map(|consumer| BusOp::GiveUp { consumer }),
        3 => consumer().prop_map(|consumer| BusOp::Done { consumer }),
        2 => consumer().prop_map(|consumer| BusOp::Leave { consumer }),
    ];
    prop::collection::vec(op, 1..OPS_MAX)
}

/// Runs `cases` random sequences, each on topics of its own, and panics with the shortest one that loses or invents
/// a record.
pub fn compare_bus_with_books<B: BusBackend>(cases: u32, backend: impl Fn() -> B) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    property(cases, &ops(), |ops| {
        let outcome = runtime.block_on(async {
            let harness = BusHarness::open(backend()).await?;
            timeout(HANG, drive(harness, &ops)).await.context("the case hangs")?
        });
        outcome.map_err(|error| TestCaseError::fail(format!("{error:#}")))
    });
}

async fn drive(harness: BusHarness, ops: &[BusOp]) -> anyhow::Result<()> {
    let clients = [harness.bus.clone(), harness.another().await];
    let members = [const { None }; CONSUMERS];
    let mut books = Books { harness, clients, members, published: BTreeMap::new(), done: HashSet::new() };
    for (number, op) in ops.iter().enumerate() {
        books.apply(op).await.with_context(|| format!("operation {number}, {op:?}"))?;
    }
    books.close().await
}

/// What was published and what became of it.
struct Books {
    harness: BusHarness,
    /// One for each consumer, as in processes of their own.
    clients: [Arc<dyn Bus>; CONSUMERS],
    members: [Option<Member>; CONSUMERS],
    published: BTreeMap<MessageId, Claim>,
    /// Records that a consumer was told, or may have been told, not to bring again.
    done: HashSet<MessageId>,
}

struct Member {
    consumer: Box<dyn Consumer>,
    /// Not yet done.
    received: HashSet<MessageId>,
}

impl Books {
    async fn apply(&mut self, op: &BusOp) -> anyhow::Result<()> {
        match op {
            BusOp::Publish { lane, recipients } => self.publish(*lane, recipients).await,
            BusOp::Foreign(bytes) => self.harness.put(bytes).await,
            BusOp::Receive { consumer, max } => self.receive(*consumer, *max, HANG).await?,
            // What a call that is given up had in hand is brought by a later one. It may have come to its end before.
            BusOp::GiveUp { consumer } => self.receive(*consumer, 10, Duration::from_micros(50)).await?,
            BusOp::Done { consumer } => {
                if let Some(member) = &mut self.members[*consumer] {
                    // After an error the bus may know of it nevertheless.
                    let _ = member.consumer.done().await;
                    self.done.extend(member.received.drain());
                }
            }
            BusOp::Leave { consumer } => self.members[*consumer] = None,
        }
        Ok(())
    }

    async fn receive(&mut self, consumer: usize, max: usize, within: Duration) -> anyhow::Result<()> {
        let member = self.member(consumer).await?;
        let receiving = receive_some(&mut *member.consumer, max, WAIT_MS);
        let claims = timeout(within, receiving).await.unwrap_or_default();
        ensure!(claims.len() <= max, "{} records, more than asked for", claims.len());
        member.received.extend(claims.iter().map(|claim| claim.id));
        self.compare(&claims)
    }

    async fn publish(&mut self, lane: Lane, recipients: &[u8]) {
        let first = self.published.len() as u64;
        let claims = (first..).zip(recipients);
        let claims = claims.map(|(n, to)| Claim { lane, ..claim(n, &format!("recipient-{to}")) });
        let claims: Vec<_> = claims.collect();
        self.harness.publish(&claims).await;
        self.published.extend(claims.into_iter().map(|claim| (claim.id, claim)));
    }

    async fn member(&mut self, number: usize) -> anyhow::Result<&mut Member> {
        if self.members[number].is_none() {
            let consumer = self.clients[number].consumer(queue("sms")).await?;
            self.members[number] = Some(Member { consumer, received: HashSet::new() });
        }
        self.members[number].as_mut().context("a member")
    }

    /// Every received record equals the published one, for each consumer and each repetition.
    fn compare(&self, claims: &[Claim]) -> anyhow::Result<()> {
        for claim in claims {
            let published = self.published.get(&claim.id);
            ensure!(published == Some(claim), "received {claim:?}, published {published:?}");
        }
        Ok(())
    }

    /// Records that no consumer has acknowledged come to a consumer that joins last.
    async fn close(mut self) -> anyhow::Result<()> {
        self.members = [const { None }; CONSUMERS];
        let missing = |books: &Self, seen: &HashSet<MessageId>| {
            books.published.keys().filter(|id| !books.done.contains(*id) && !seen.contains(*id)).count()
        };
        let mut seen = HashSet::new();
        let mut last = self.clients[0].consumer(queue("sms")).await?;
        while missing(&self, &seen) > 0 {
            let claims = receive_some(&mut *last, 100, WAIT_MS).await;
            self.compare(&claims)?;
            seen.extend(claims.into_iter().map(|claim| claim.id));
        }
        Ok(())
    }
}

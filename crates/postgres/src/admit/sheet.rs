use std::collections::BTreeMap;

use tidegate_domain::{Admission, Due, OnLimit, Order, QueueName, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::codes::{bounded, checksum, duration, headers_text, lane_code, limit};
use crate::connection::CallError;
use crate::open::Core;

const ADMIT: &str = "SELECT * FROM admit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, \
                     $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34)";

/// Items as columns, what they share, sorted, and what the database need not count.
pub struct Sheet<'a> {
    queue_at: Vec<i32>,
    chain_at: Vec<Option<i32>>,
    /// Of the first of its chain: how many there are of it. 0 for the others.
    first_of: Vec<Option<i32>>,
    recipient: Vec<Option<&'a str>>,
    lane: Vec<i16>,
    /// The highest lane among those of its chain.
    line_lane: Vec<i16>,
    due: Vec<Option<i64>>,
    expires: Vec<Option<i64>>,
    user_at: Vec<Option<i32>>,
    horizon_ms: Vec<Option<i64>>,
    key_at: Vec<Option<i32>>,
    fingerprint: Vec<Option<&'a [u8]>>,
    headers: Vec<Option<String>>,
    ack: Vec<bool>,
    body: Vec<&'a [u8]>,
    checksum: Vec<i64>,
    pub queues: Vec<&'a QueueName>,
    /// By lane: of the whole ledger, then of each queue.
    books: [Vec<i64>; 3],
    chains: Vec<(&'a str, &'a str)>,
    members: [Vec<i32>; 3],
    users: Vec<&'a str>,
    charges: Vec<i32>,
    keys: Vec<&'a [u8]>,
    keys_repeat: bool,
}

impl<'a> Sheet<'a> {
    pub fn new(core: &Core, items: &'a [Admission]) -> Self {
        let chain = |item: &'a Admission| {
            let recipient = item.recipient.as_ref()?.as_str();
            let strict = core.options.rule_of(&item.queue).order == Order::Strict;
            strict.then_some((item.queue.as_str(), recipient))
        };
        let key = |item: &'a Admission| Some(&item.idempotency.as_ref()?.key.0[..]);
        let user = |item: &'a Admission| Some(item.charge.as_ref()?.as_str());
        let (queues, queue_at) = places(items.iter().map(|item| Some(&item.queue)));
        let (chains, chain_at) = places(items.iter().map(chain));
        let (users, user_at) = places(items.iter().map(user));
        let (keys, key_at) = places(items.iter().map(key));
        let lane: Vec<_> = items.iter().map(|item| lane_code(item.lane)).collect();
        let by_lane = |of: i16, at: &[Option<i32>], count: usize| {
            let of_lane = at.iter().zip(&lane).map(|(place, lane)| place.filter(|_| *lane == of));
            tallied(of_lane, count)
        };
        let lanes = [0, 1, 2];
        let members = lanes.map(|of| by_lane(of, &chain_at, chains.len()));
        let books = lanes.map(|of| {
            let counts = by_lane(of, &queue_at, queues.len());
            std::iter::once(counts.iter().sum()).chain(counts).map(i64::from).collect()
        });
        Self {
            first_of: first_of(&chain_at, &members),
            line_lane: line_lanes(&chain_at, &lane, &members),
            charges: tallied(user_at.iter().copied(), users.len()),
            keys_repeat: key_at.iter().flatten().count() > keys.len(),
            queue_at: queue_at.into_iter().flatten().collect(),
            chain_at: sparse(chain_at),
            recipient: sparse(
                items.iter().map(|item| item.recipient.as_ref().map(|name| name.as_str())).collect(),
            ),
            lane,
            due: sparse(items.iter().map(|item| due(item.due)).collect()),
            expires: sparse(items.iter().map(|item| item.expires.map(Timestamp::millis)).collect()),
            user_at: sparse(user_at),
            horizon_ms: sparse(items.iter().map(|item| horizon_ms(item.on_limit)).collect()),
            key_at: sparse(key_at),
            fingerprint: sparse(
                items
                    .iter()
                    .map(|item| item.idempotency.as_ref().map(|known| &known.fingerprint.0[..]))
                    .collect(),
            ),
            headers: sparse(items.iter().map(|item| headers_text(&item.headers)).collect()),
            ack: items.iter().map(|item| item.ack_required).collect(),
            body: items.iter().map(|item| &item.body[..]).collect(),
            checksum: items.iter().map(|item| checksum(&item.body)).collect(),
            queues,
            books,
            chains,
            members,
            users,
            keys,
        }
    }

    /// The item's user: his place, what is charged to him in all, and the item's turn among that.
    pub fn charges(&self) -> impl Iterator<Item = Option<Charge>> {
        let mut turns = vec![0; self.users.len()];
        (0..self.lane.len()).map(move |item| {
            let place = self.user_at.get(item).copied().flatten().and_then(index)?;
            let turn = turns.get_mut(place)?;
            *turn += 1;
            Some(Charge { place, later: i64::from(self.charges.get(place)? - *turn) })
        })
    }

    pub async fn send(&self, core: &Core) -> Result<Vec<Row>, CallError> {
        let rules: Vec<_> = self.queues.iter().map(|queue| core.options.rule_of(queue)).collect();
        let names: Vec<_> = self.queues.iter().map(|queue| queue.as_str()).collect();
        let maxima: Vec<_> = rules.iter().map(|rule| limit(rule.pending_max)).collect();
        let hard_maxima: Vec<_> = rules.iter().map(|rule| bounded(rule.pending_hard_max)).collect();
        let chain_queues: Vec<_> = self.chains.iter().map(|chain| chain.0).collect();
        let chain_recipients: Vec<_> = self.chains.iter().map(|chain| chain.1).collect();
        let (pending_max, pending_spare) = core.options.room();
        let key_window_ms = duration(core.options.idempotency_window_ms);
        let params: [&(dyn ToSql + Sync); 34] = [
            &self.queue_at,
            &self.chain_at,
            &self.first_of,
            &self.recipient,
            &self.lane,
            &self.line_lane,
            &self.due,
            &self.expires,
            &self.user_at,
            &self.horizon_ms,
            &self.key_at,
            &self.fingerprint,
            &self.headers,
            &self.ack,
            &self.body,
            &self.checksum,
            &names,
            &maxima,
            &hard_maxima,
            &self.books[0],
            &self.books[1],
            &self.books[2],
            &chain_queues,
            &chain_recipients,
            &self.members[0],
            &self.members[1],
            &self.members[2],
            &self.users,
            &self.charges,
            &self.keys,
            &self.keys_repeat,
            &pending_max,
            &pending_spare,
            &key_window_ms,
        ];
        core.connections.call(ADMIT, &params).await
    }
}

/// What is charged to a user.
#[derive(Debug, Clone, Copy)]
pub struct Charge {
    /// The user's place among all, counted from 0.
    pub place: usize,
    /// How many items of his come after this one.
    pub later: i64,
}

fn due(due: Due) -> Option<i64> {
    match due {
        Due::Now => None,
        Due::At(at) => Some(at.millis()),
    }
}

fn horizon_ms(on_limit: OnLimit) -> Option<i64> {
    match on_limit {
        OnLimit::Deny => None,
        OnLimit::Defer { horizon_ms } => Some(duration(horizon_ms)),
    }
}

/// Distinct values in their order, and for each item its value's place among them, counted from 1.
pub fn places<T: Ord + Copy>(values: impl Iterator<Item = Option<T>> + Clone) -> (Vec<T>, Vec<Option<i32>>) {
    let mut known: BTreeMap<T, i32> = values.clone().flatten().map(|value| (value, 0)).collect();
    for (place, at) in (1..).zip(known.values_mut()) {
        *at = place;
    }
    let at = values.map(|value| value.and_then(|value| known.get(&value).copied())).collect();
    (known.into_keys().collect(), at)
}

/// A place counted from 1 as one that is counted from 0.
fn index(place: i32) -> Option<usize> {
    usize::try_from(place).ok()?.checked_sub(1)
}

/// How many items there are at each place.
fn tallied(at: impl Iterator<Item = Option<i32>>, places: usize) -> Vec<i32> {
    let mut counts = vec![0; places];
    for place in at.flatten().filter_map(index) {
        counts[place] += 1;
    }
    counts
}

fn first_of(chain_at: &[Option<i32>], members: &[Vec<i32>; 3]) -> Vec<Option<i32>> {
    let count = members[0].len();
    let mut left: Vec<i32> = (0..count).map(|chain| members.iter().map(|lane| lane[chain]).sum()).collect();
    let of = |place: &Option<i32>| Some(std::mem::take(&mut left[index((*place)?)?]));
    sparse(chain_at.iter().map(of).collect())
}

fn line_lanes(chain_at: &[Option<i32>], lane: &[i16], members: &[Vec<i32>; 3]) -> Vec<i16> {
    let highest = |place: Option<i32>| {
        let chain = index(place?)?;
        (0i16..).zip(members).find(|(_, members)| members[chain] > 0).map(|(lane, _)| lane)
    };
    chain_at.iter().zip(lane).map(|(place, lane)| highest(*place).unwrap_or(*lane)).collect()
}

/// A column without a value is not worth sending.
fn sparse<T>(column: Vec<Option<T>>) -> Vec<Option<T>> {
    if column.iter().all(Option::is_none) { Vec::new() } else { column }
}

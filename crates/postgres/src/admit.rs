use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_domain::limits::Quota;
use tidegate_domain::{Admission, Admitted, Due, LedgerError, OnLimit, Order, QueueName, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::batch::Operation;
use crate::codes::{bounded, checksum, duration, headers_text, lane_code, limit, nonsense, small, unsigned};
use crate::error::{Access, NO_PARTITION, RACE};
use crate::open::Core;

const ADMIT: &str = "SELECT * FROM admit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, \
                     $16, $17, $18, $19, $20, $21, $22, $23)";

/// How often a batch is decided anew because another gateway used one of its keys at the same moment.
pub const RACES_MAX: usize = 5;

#[derive(Debug)]
pub struct Admissions(pub Arc<Core>);

#[async_trait]
impl Operation for Admissions {
    type Item = Admission;
    type Answer = Admitted;

    async fn run(&self, items: Vec<Admission>) -> Result<Vec<Admitted>, LedgerError> {
        let core = &self.0;
        let sheet = Sheet::new(core, &items);
        let mut races = 0;
        let rows = loop {
            match sheet.send(core).await {
                Err(error) if error.is_code(RACE) && races < RACES_MAX => races += 1,
                Err(error) if error.is_code(NO_PARTITION) && races < RACES_MAX => {
                    core.make_partitions().await?;
                    races += 1;
                }
                result => break result.map_err(|error| error.meaning(Access::Write))?,
            }
        };
        if rows.len() != items.len() {
            return Err(nonsense("number of answers", rows.len()));
        }
        let answers: Vec<_> = rows.iter().map(|row| answer(core, row)).collect::<Result<_, _>>()?;
        for (item, answer) in items.iter().zip(&answers) {
            if matches!(answer, Admitted::Admitted { .. } | Admitted::Deferred { .. }) {
                core.wakes.wake(&item.queue);
            }
        }
        Ok(answers)
    }

    fn bytes(item: &Admission) -> usize {
        item.body.len() + item.headers.0.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }
}

/// The items as columns, and what they share, sorted.
struct Sheet<'a> {
    queue_at: Vec<i32>,
    chain_at: Vec<Option<i32>>,
    recipient: Vec<Option<&'a str>>,
    lane: Vec<i16>,
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
    queues: Vec<&'a QueueName>,
    chains: Vec<(&'a str, &'a str)>,
    users: Vec<&'a str>,
    keys: Vec<&'a [u8]>,
}

impl<'a> Sheet<'a> {
    fn new(core: &Core, items: &'a [Admission]) -> Self {
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
        Self {
            queue_at: queue_at.into_iter().flatten().collect(),
            chain_at,
            recipient: items.iter().map(|item| item.recipient.as_ref().map(|name| name.as_str())).collect(),
            lane: items.iter().map(|item| lane_code(item.lane)).collect(),
            due: items.iter().map(|item| due(item.due)).collect(),
            expires: items.iter().map(|item| item.expires.map(Timestamp::millis)).collect(),
            user_at,
            horizon_ms: items.iter().map(|item| horizon_ms(item.on_limit)).collect(),
            key_at,
            fingerprint: items
                .iter()
                .map(|item| item.idempotency.as_ref().map(|known| &known.fingerprint.0[..]))
                .collect(),
            headers: items.iter().map(|item| headers_text(&item.headers)).collect(),
            ack: items.iter().map(|item| item.ack_required).collect(),
            body: items.iter().map(|item| &item.body[..]).collect(),
            checksum: items.iter().map(|item| checksum(&item.body)).collect(),
            queues,
            chains,
            users,
            keys,
        }
    }

    async fn send(&self, core: &Core) -> Result<Vec<Row>, crate::connection::CallError> {
        let rules: Vec<_> = self.queues.iter().map(|queue| core.options.rule_of(queue)).collect();
        let names: Vec<_> = self.queues.iter().map(|queue| queue.as_str()).collect();
        let maxima: Vec<_> = rules.iter().map(|rule| limit(rule.pending_max)).collect();
        let hard_maxima: Vec<_> = rules.iter().map(|rule| bounded(rule.pending_hard_max)).collect();
        let chain_queues: Vec<_> = self.chains.iter().map(|chain| chain.0).collect();
        let chain_recipients: Vec<_> = self.chains.iter().map(|chain| chain.1).collect();
        let pending_max = bounded(core.options.pending_max);
        let key_window_ms = duration(core.options.idempotency_window_ms);
        let params: [&(dyn ToSql + Sync); 23] = [
            &self.queue_at,
            &self.chain_at,
            &self.recipient,
            &self.lane,
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
            &chain_queues,
            &chain_recipients,
            &self.users,
            &self.keys,
            &pending_max,
            &key_window_ms,
        ];
        core.connections.call(ADMIT, &params).await
    }
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

fn answer(core: &Core, row: &Row) -> Result<Admitted, LedgerError> {
    let (seq, at): (Option<i64>, i64) = (row.get(1), row.get(2));
    let id = core.id(at, seq.unwrap_or_default());
    let at = Timestamp::from_millis(at);
    let quota = row.get::<_, Option<i64>>(4).map(|max| Quota {
        limit: small(max),
        window_ms: unsigned(row.get(5)),
        count: small(row.get(6)),
        since: Timestamp::from_millis(row.get(7)),
    });
    let charged = || quota.ok_or_else(|| nonsense("charge", "nothing"));
    Ok(match row.get::<_, i16>(0) {
        0 => Admitted::Admitted { id, at, quota },
        1 => {
            let due = Timestamp::from_millis(row.get(3));
            Admitted::Deferred { id, at, due, quota: charged()? }
        }
        2 => Admitted::Duplicate { id, at },
        3 => Admitted::KeyConflict { id },
        4 => Admitted::UnknownUser,
        5 => {
            let quota = charged()?;
            Admitted::OverQuota { retry_after_ms: quota.resets_in_ms(at), at, quota }
        }
        6 => Admitted::Full,
        7 => Admitted::QueueFull,
        code => return Err(nonsense("verdict", code)),
    })
}

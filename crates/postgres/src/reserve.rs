mod places;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_domain::{
    LedgerError, Order, Reservation, Reserved, Slot, SlotConfig, SlotConfigName, SlotMessage, Timestamp,
};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::admit::{RACES_MAX, places};
use crate::batch::Operation;
use crate::codes::{bounded, checksum, headers_text, lane_code, limit, nonsense};
use crate::connection::CallError;
use crate::error::{Access, MORE_RANGES, NO_PARTITION, RACE, STALE_CONFIG};
use crate::open::Core;

pub use self::places::{Places, Reach};

const RESERVE: &str = "SELECT * FROM reserve($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, \
                       $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28)";

#[derive(Debug)]
pub struct Reservations(pub Arc<Core>);

#[async_trait]
impl Operation for Reservations {
    type Item = Reservation;
    type Answer = Reserved;

    async fn run(&self, items: Vec<Reservation>) -> Result<Vec<Reserved>, LedgerError> {
        let mut answers = Vec::with_capacity(items.len());
        let mut parts = VecDeque::from([(items, Reach::default())]);
        while let Some((part, reach)) = parts.pop_front() {
            match decide(&self.0, &part, reach).await {
                Ok(rows) => answers.extend(tell(&self.0, part, &rows)?),
                Err(Undecided::TooShort) => divide(part, reach.wider(), &mut parts),
                // Of those before it there is an answer, which is lost with this one.
                Err(Undecided::Failed(error)) if !answers.is_empty() => {
                    return Err(LedgerError::OutcomeUnknown(error.to_string()));
                }
                Err(Undecided::Failed(error)) => return Err(error),
            }
        }
        Ok(answers)
    }

    fn bytes(item: &Reservation) -> usize {
        item.message.as_ref().map_or(0, |message| message.body.len())
    }
}

/// Why a batch has no answers.
#[derive(Debug)]
enum Undecided {
    /// Somebody found all open time full that was looked through. Nothing has happened.
    TooShort,
    Failed(LedgerError),
}

impl From<LedgerError> for Undecided {
    fn from(error: LedgerError) -> Self {
        Self::Failed(error)
    }
}

/// In order: those of the first part are decided before the next.
fn divide(mut items: Vec<Reservation>, reach: Reach, parts: &mut VecDeque<(Vec<Reservation>, Reach)>) {
    let mut later = Vec::new();
    while items.len() > reach.events_max() {
        let rest = items.split_off(reach.events_max());
        later.push(std::mem::replace(&mut items, rest));
    }
    later.push(items);
    for part in later.into_iter().rev() {
        parts.push_front((part, reach));
    }
}

async fn decide(core: &Core, items: &[Reservation], reach: Reach) -> Result<Vec<Row>, Undecided> {
    let mut tries = 0;
    let rows = loop {
        let configs = configs_of(core, items).await?;
        match send(core, items, &configs, reach).await {
            Err(error) if error.is_code(RACE) && tries < RACES_MAX => tries += 1,
            Err(error) if error.is_code(NO_PARTITION) && tries < RACES_MAX => {
                core.make_partitions().await?;
                tries += 1;
            }
            Err(error) if error.is_code(STALE_CONFIG) && tries < RACES_MAX => {
                core.slot_configs.forget_all();
                tries += 1;
            }
            Err(error) if error.is_code(MORE_RANGES) => return Err(Undecided::TooShort),
            result => break result.map_err(|error| error.meaning(Access::Write))?,
        }
    };
    if rows.len() != items.len() {
        return Err(nonsense("number of answers", rows.len()).into());
    }
    Ok(rows)
}

fn tell(core: &Core, items: Vec<Reservation>, rows: &[Row]) -> Result<Vec<Reserved>, LedgerError> {
    for message in items.iter().filter_map(|item| item.message.as_ref()) {
        core.wakes.wake(&message.queue);
    }
    items.into_iter().zip(rows).map(|(item, row)| answer(core, item, row)).collect()
}

type Configs = HashMap<SlotConfigName, Option<Arc<SlotConfig>>>;

async fn configs_of(core: &Core, items: &[Reservation]) -> Result<Configs, LedgerError> {
    let mut configs = Configs::new();
    for item in items {
        if !configs.contains_key(&item.config) {
            configs.insert(item.config.clone(), core.active_slot_config(&item.config).await?);
        }
    }
    Ok(configs)
}

async fn send(
    core: &Core,
    items: &[Reservation],
    configs: &Configs,
    reach: Reach,
) -> Result<Vec<Row>, CallError> {
    let rule_of = |item: &Reservation| configs.get(&item.config).and_then(|config| config.as_ref());
    let all_places: Vec<Places> = items
        .iter()
        .map(|item| match rule_of(item) {
            Some(config) => Places::new(&config.rule, item.requested, item.jitter, reach),
            None => Places::default(),
        })
        .collect();
    let column = |value: fn(&Places) -> i64| all_places.iter().map(value).collect::<Vec<i64>>();
    let (mut range_at, mut range_from, mut range_past) = (vec![1i32], Vec::<i64>::new(), Vec::<i64>::new());
    for places in &all_places {
        range_from.extend(&places.from);
        range_past.extend(&places.past);
        range_at.push(i32::try_from(range_from.len() + 1).unwrap_or(i32::MAX));
    }
    let message = |item: &'_ Reservation| item.message.clone();
    let messages: Vec<Option<SlotMessage>> = items.iter().map(message).collect();
    let chain = |message: &Option<SlotMessage>| {
        let message = message.as_ref()?;
        let strict = core.options.rule_of(&message.queue).order == Order::Strict;
        let recipient = message.recipient.clone()?;
        strict.then(|| (message.queue.clone(), recipient))
    };
    let chains_of: Vec<_> = messages.iter().map(chain).collect();
    let (events, event_at) = places(items.iter().map(|item| Some(item.event.as_str())));
    let (names, config_at) = places(items.iter().map(|item| Some(&item.config)));
    let (queues, queue_at) = places(messages.iter().map(|message| message.as_ref().map(|m| &m.queue)));
    let (chains, chain_at) = places(chains_of.iter().map(Option::as_ref));
    let versions: Vec<i32> = names
        .iter()
        .map(|name| configs.get(*name).and_then(|config| config.as_ref()).map_or(0, |config| config.version))
        .map(u32::cast_signed)
        .collect();
    let names: Vec<_> = names.iter().map(|name| name.as_str()).collect();
    let requested: Vec<_> = items.iter().map(|item| item.requested.millis()).collect();
    let recipients: Vec<_> = messages
        .iter()
        .map(|message| message.as_ref()?.recipient.as_ref().map(|name| name.as_str()))
        .collect();
    let lanes: Vec<_> = messages.iter().map(|message| message.as_ref().map(|m| lane_code(m.lane))).collect();
    let headers: Vec<_> =
        messages.iter().map(|message| message.as_ref().and_then(|m| headers_text(&m.headers))).collect();
    let bodies: Vec<_> = messages.iter().map(|message| message.as_ref().map(|m| &m.body[..])).collect();
    let checksums: Vec<_> = bodies.iter().map(|body| body.map(checksum)).collect();
    let rules: Vec<_> = queues.iter().map(|queue| core.options.rule_of(queue)).collect();
    let queue_names: Vec<_> = queues.iter().map(|queue| queue.as_str()).collect();
    let maxima: Vec<_> = rules.iter().map(|rule| limit(rule.pending_max)).collect();
    let hard_maxima: Vec<_> = rules.iter().map(|rule| bounded(rule.pending_hard_max)).collect();
    let chain_queues: Vec<_> = chains.iter().map(|chain| chain.0.as_str()).collect();
    let chain_recipients: Vec<_> = chains.iter().map(|chain| chain.1.as_str()).collect();
    let ((pending_max, pending_spare), slots_max) = (core.options.room(), bounded(core.options.slots_max));
    let (first, share) = (column(|places| places.first), column(|places| places.share));
    let (first_at, jitter_ms) = (column(|places| places.first_at), column(|places| places.jitter_ms));
    let params: [&(dyn ToSql + Sync); 28] = [
        &event_at,
        &config_at,
        &requested,
        &first,
        &share,
        &first_at,
        &jitter_ms,
        &range_at,
        &range_from,
        &range_past,
        &queue_at,
        &chain_at,
        &recipients,
        &lanes,
        &headers,
        &bodies,
        &checksums,
        &events,
        &names,
        &versions,
        &queue_names,
        &maxima,
        &hard_maxima,
        &chain_queues,
        &chain_recipients,
        &pending_max,
        &pending_spare,
        &slots_max,
    ];
    core.connections.call(RESERVE, &params).await
}

fn answer(core: &Core, item: Reservation, row: &Row) -> Result<Reserved, LedgerError> {
    Ok(match row.get::<_, i16>(0) {
        0 => Reserved::Assigned(core.slot_of(item.event, row, 1)?),
        1 => Reserved::Existing(core.slot_of(item.event, row, 1)?),
        2 => Reserved::UnknownConfig,
        3 => Reserved::NoRoom,
        4 => Reserved::Full,
        code => return Err(nonsense("verdict", code)),
    })
}

impl Core {
    /// From the columns config, requested, scheduled, window_start, created_at, message_seq and message_ms.
    pub fn slot_of(
        &self,
        event: tidegate_domain::EventId,
        row: &Row,
        from: usize,
    ) -> Result<Slot, LedgerError> {
        let name: &str = row.try_get(from).map_err(|error| nonsense("slot", error))?;
        let time = |place: usize| Timestamp::from_millis(row.get(from + place));
        let message: Option<i64> = row.get(from + 5);
        Ok(Slot {
            event,
            config: SlotConfigName::new(name).map_err(|_| nonsense("slot configuration", name))?,
            requested: time(1),
            scheduled: time(2),
            window_start: time(3),
            created_at: time(4),
            message: message.map(|seq| self.id(row.get::<_, Option<i64>>(from + 6).unwrap_or_default(), seq)),
        })
    }
}

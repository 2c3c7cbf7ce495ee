use std::collections::HashMap;
use std::pin::pin;

use async_trait::async_trait;
use tidegate_domain::transfer::{
    Entry, Fate, Generations, Import, KeyEntry, Manifest, MessageEntry, QueueEntry, QuotaEntry, SlotEntry,
    Stock, TransferError,
};
use tidegate_domain::{AttemptResult, Order, QueueName, SlotConfig, SlotConfigName, Status, Timestamp};
use tokio_postgres::Client;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};

use super::departure::stock;
use super::{refused, unwritten, whole};
use crate::codes::{checksum, duration, headers_text, lane_code, status_code, text};
use crate::error::{Access, ledger_error};
use crate::slot_configs::calendar_text;
use crate::{OpenError, Options};

/// An import under way: one transaction, which nobody sees anything of.
#[derive(Debug)]
pub(super) struct Arrival {
    client: Client,
    options: Options,
    manifest: Manifest,
    now: i64,
    configs: HashMap<SlotConfigName, (Generations, i64)>,
    tallies: HashMap<QueueName, Tally>,
    message_seq: u64,
}

/// A queue's own book: of the messages that came along, which is all that anybody can ask it for.
#[derive(Debug, Default, Clone)]
pub(super) struct Tally {
    /// Delivered, dead, expired and deleted.
    pub(super) ended: [i64; 4],
    pub(super) depth: [i64; 3],
}

type Values<'a> = Vec<Box<dyn ToSql + Sync + Send + 'a>>;

/// A row's values, one for each column.
macro_rules! values {
    ($($value:expr),+ $(,)?) => { vec![$(Box::new($value) as Box<dyn ToSql + Sync + Send>),+] };
}

impl Arrival {
    pub(super) async fn begin(
        client: Client,
        options: Options,
        manifest: Manifest,
    ) -> Result<Self, OpenError> {
        whole::begin(&client, &options).await?;
        whole::require_empty(&client).await?;
        whole::lay_partitions(&client, &options, manifest.seq_last).await?;
        let now = client.query_one("SELECT now_ms()", &[]).await?.get(0);
        Ok(Self {
            client,
            options,
            manifest,
            now,
            configs: HashMap::new(),
            tallies: HashMap::new(),
            message_seq: 0,
        })
    }

    async fn copy(&self, table: &str, types: &[Type], rows: Vec<Values<'_>>) -> Result<(), TransferError> {
        if rows.is_empty() {
            return Ok(());
        }
        let written = async {
            let sink = self.client.copy_in(&format!("COPY {table} FROM STDIN BINARY")).await?;
            let mut writer = pin!(BinaryCopyInWriter::new(sink, types));
            for row in rows {
                writer.as_mut().write_raw(row).await?;
            }
            writer.finish().await
        };
        written.await.map(drop).map_err(|error| unwritten(&error))
    }

    async fn put_messages(&mut self, messages: Vec<MessageEntry>) -> Result<(), TransferError> {
        let (mut rows, mut waiting, mut ended, mut tried) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for message in &messages {
            self.check(message)?;
            let seq = message.seq.cast_signed();
            let strict = self.options.rule_of(&message.queue).order == Order::Strict;
            let chained = strict && message.recipient.is_some();
            rows.push(self.message_row(message, chained));
            for attempt in &message.attempts {
                let result = match attempt.result {
                    AttemptResult::Failed => 1_i16,
                    AttemptResult::Accepted => 2,
                    AttemptResult::Requeued => 4,
                    AttemptResult::Delivered => {
                        return Err(refused(format!("message number {seq} was pending after its end")));
                    }
                };
                tried.push(values![
                    seq,
                    attempt.number.cast_signed(),
                    attempt.at.millis(),
                    duration(attempt.latency_ms),
                    result,
                    attempt.reason.clone().map(text),
                ]);
            }
            let due = message.due_at.millis();
            match &message.fate {
                Fate::Pending { .. } => waiting.push(self.pending_row(message, chained)),
                Fate::Ended(end) => ended.push(values![
                    seq,
                    status_code(end.status),
                    end.at.millis(),
                    due,
                    end.reason.clone().map(text),
                    end.attempt.map(|(number, _)| number.cast_signed()),
                    end.attempt.map(|(_, latency_ms)| duration(latency_ms)),
                ]),
            }
        }
        self.copy(MESSAGE, MESSAGE_TYPES, rows).await?;
        self.copy(OUTCOME, OUTCOME_TYPES, ended).await?;
        self.copy(ATTEMPT, ATTEMPT_TYPES, tried).await?;
        self.copy(PENDING, PENDING_TYPES, waiting).await
    }

    fn check(&mut self, message: &MessageEntry) -> Result<(), TransferError> {
        let seq = message.seq;
        if seq <= self.message_seq || seq > self.manifest.seq_last {
            return Err(refused(format!("message number {seq} is out of turn")));
        }
        self.message_seq = seq;
        // What has ended may be of a queue that is forgotten, and has no book.
        let forgotten = &mut Tally::default();
        let tally = match (self.tallies.get_mut(&message.queue), &message.fate) {
            (Some(tally), _) => tally,
            (None, Fate::Ended(_)) => forgotten,
            (None, Fate::Pending { .. }) => {
                let said = format!("message number {seq} names an unknown queue, {}", message.queue);
                return Err(refused(said));
            }
        };
        match &message.fate {
            Fate::Pending { .. } => tally.depth[message.lane.index()] += 1,
            Fate::Ended(end) => match end.status {
                Status::Pending => return Err(refused(format!("message number {seq} has no end"))),
                Status::Delivered => tally.ended[0] += 1,
                Status::Dead => tally.ended[1] += 1,
                Status::Expired => tally.ended[2] += 1,
                Status::Deleted => tally.ended[3] += 1,
            },
        }
        Ok(())
    }

    fn message_row<'a>(&self, message: &'a MessageEntry, chained: bool) -> Values<'a> {
        values![
            message.seq.cast_signed(),
            message.admitted_at.millis(),
            message.queue.as_str(),
            message.recipient.as_ref().map(|recipient| recipient.as_str()),
            chained,
            lane_code(message.lane),
            message.user.as_ref().map(|user| user.as_str()),
            message.expires_at.map(Timestamp::millis),
            headers_text(&message.headers),
            message.ack_required,
            &*message.body,
            checksum(&message.body),
        ]
    }

    /// The heads of chains are found when all are there.
    fn pending_row<'a>(&self, message: &'a MessageEntry, chained: bool) -> Values<'a> {
        let Fate::Pending { place, spent, failures, acks } = message.fate else { return Vec::new() };
        let due = message.due_at.millis();
        // A clock behind the other ledger's must not make anything wait that did not have to.
        let claimable = if message.due_at == message.admitted_at { due.min(self.now) } else { due };
        values![
            message.seq.cast_signed(),
            message.admitted_at.millis(),
            message.queue.as_str(),
            message.recipient.as_ref().map(|recipient| recipient.as_str()),
            chained,
            place.cast_signed(),
            lane_code(message.lane),
            !chained,
            lane_code(message.lane),
            due,
            claimable,
            message.expires_at.map(Timestamp::millis),
            spent.cast_signed(),
            failures.cast_signed(),
            acks.cast_signed(),
        ]
    }

    async fn put_queues(&mut self, queues: Vec<QueueEntry>) -> Result<(), TransferError> {
        let rows = queues.iter().map(|queue| values![queue.name.as_str(), queue.paused]).collect();
        self.copy("queue (name, paused)", &[Type::TEXT, Type::BOOL], rows).await?;
        self.tallies.extend(queues.into_iter().map(|queue| (queue.name, Tally::default())));
        Ok(())
    }

    async fn put_quotas(&self, quotas: Vec<QuotaEntry>) -> Result<(), TransferError> {
        let row = |entry: &QuotaEntry| {
            let quota = entry.quota;
            let dues = entry.deferrals.dues();
            let (dues, counts): (Vec<i64>, Vec<i64>) =
                dues.map(|(due, count)| (due.millis(), i64::from(count))).unzip();
            let (max, count) = (i64::from(quota.limit), i64::from(quota.count));
            let user = entry.user.as_str().to_owned();
            let (window_ms, since) = (duration(quota.window_ms), quota.since.millis());
            values![user, max, window_ms, count, since, dues, counts, quota.exempts_high]
        };
        const I: Type = Type::INT8;
        let types = [Type::TEXT, I, I, I, I, Type::INT8_ARRAY, Type::INT8_ARRAY, Type::BOOL];
        let table = "quota (user_id, max, window_ms, count, since, later_at, later, exempts_high)";
        self.copy(table, &types, quotas.iter().map(row).collect()).await
    }

    async fn put_slot_configs(&mut self, configs: Vec<SlotConfig>) -> Result<(), TransferError> {
        let mut rows = Vec::new();
        for config in &configs {
            let (generations, max) = self.configs.entry(config.name.clone()).or_default();
            generations.add(config.rule.window_ms);
            *max = i64::from(config.rule.max_per_window);
            if config.version != generations.versions() {
                let said = format!("slot config {}: version {} is out of turn", config.name, config.version);
                return Err(refused(said));
            }
            rows.push(values![
                config.name.as_str(),
                config.version.cast_signed(),
                *max,
                duration(config.rule.window_ms),
                duration(config.rule.headroom_windows),
                calendar_text(&config.rule.calendar),
                config.created_at.millis(),
            ]);
        }
        const I: Type = Type::INT8;
        let types = [Type::TEXT, Type::INT4, I, I, I, Type::TEXT, I];
        let table =
            "slot_config (name, version, max_per_window, window_ms, headroom_windows, calendar, created_at)";
        self.copy(table, &types, rows).await
    }

    async fn put_slots(&self, slots: Vec<SlotEntry>) -> Result<(), TransferError> {
        let mut rows = Vec::new();
        for slot in &slots {
            let generations = self.configs.get(&slot.config).map(|(generations, _)| generations);
            let Some(size) = generations.and_then(|known| known.window_ms(slot.generation)) else {
                let said =
                    format!("the slot of event {} names an unknown config, {}", slot.event, slot.config);
                return Err(refused(said));
            };
            let start = slot.window.saturating_mul(duration(size));
            let over = start.saturating_add(duration(size)).max(slot.created_at.millis());
            rows.push(values![
                slot.event.as_str(),
                slot.config.as_str(),
                slot.generation.cast_signed(),
                slot.requested.millis(),
                slot.scheduled.millis(),
                slot.window,
                start,
                slot.created_at.millis(),
                over,
                slot.message.map(u64::cast_signed),
            ]);
        }
        const I: Type = Type::INT8;
        let types = [Type::TEXT, Type::TEXT, Type::INT4, I, I, I, I, I, I, I];
        let table = "slot (event, config, generation, requested, scheduled, window_no, window_start, created_at, \
                     over_at, message_seq)";
        self.copy(table, &types, rows).await
    }

    async fn put_keys(&self, keys: Vec<KeyEntry>) -> Result<(), TransferError> {
        let row = |key: &KeyEntry| {
            let (hash, fingerprint) = (key.key.0.to_vec(), key.fingerprint.0.to_vec());
            values![hash, fingerprint, key.seq.cast_signed(), key.admitted_at.millis()]
        };
        let types = [Type::BYTEA, Type::BYTEA, Type::INT8, Type::INT8];
        let rows = keys.iter().map(row).collect();
        self.copy("key (key, fingerprint, seq, admitted_at)", &types, rows).await
    }
}

#[async_trait]
impl Import for Arrival {
    async fn put(&mut self, entries: Vec<Entry>) -> Result<(), TransferError> {
        let (mut queues, mut quotas, mut configs) = (Vec::new(), Vec::new(), Vec::new());
        let (mut slots, mut messages, mut keys) = (Vec::new(), Vec::new(), Vec::new());
        for entry in entries {
            match entry {
                Entry::Queue(queue) => queues.push(queue),
                Entry::Quota(quota) => quotas.push(quota),
                Entry::SlotConfig(config) => configs.push(config),
                Entry::Slot(slot) => slots.push(slot),
                Entry::Message(message) => messages.push(*message),
                Entry::Key(key) => keys.push(key),
            }
        }
        self.put_queues(queues).await?;
        self.put_quotas(quotas).await?;
        self.put_slot_configs(configs).await?;
        self.put_slots(slots).await?;
        self.put_messages(messages).await?;
        self.put_keys(keys).await
    }

    async fn seal(&mut self) -> Result<Stock, TransferError> {
        let sealed = async {
            whole::make_slot_books(&self.client, &self.configs).await?;
            whole::make_chains(&self.client).await?;
            whole::make_tallies(&self.client, &self.manifest, &self.tallies).await?;
            whole::continue_from(&self.client, &self.options, &self.manifest).await?;
            stock(&self.client, i64::MIN).await
        };
        sealed.await.map_err(|error| unwritten(&error))
    }

    async fn commit(self: Box<Self>) -> Result<(), TransferError> {
        let committed = self.client.batch_execute("COMMIT").await;
        committed.map_err(|error| TransferError::Ledger(ledger_error(&error, Access::Write)))
    }
}

const MESSAGE: &str = "message (seq, admitted_at, queue, recipient, chained, lane, user_id, expires_at, headers, \
                       ack_required, body, checksum)";
const MESSAGE_TYPES: &[Type] = &[
    Type::INT8,
    Type::INT8,
    Type::TEXT,
    Type::TEXT,
    Type::BOOL,
    Type::INT2,
    Type::TEXT,
    Type::INT8,
    Type::TEXT,
    Type::BOOL,
    Type::BYTEA,
    Type::INT8,
];
const OUTCOME: &str = "outcome (seq, status, at, due_at, reason, number, latency_ms)";
const OUTCOME_TYPES: &[Type] =
    &[Type::INT8, Type::INT2, Type::INT8, Type::INT8, Type::TEXT, Type::INT4, Type::INT8];
const ATTEMPT: &str = "attempt (seq, number, at, latency_ms, result, reason)";
const ATTEMPT_TYPES: &[Type] = &[Type::INT8, Type::INT4, Type::INT8, Type::INT8, Type::INT2, Type::TEXT];
const PENDING: &str = "pending (seq, admitted_at, queue, recipient, chained, place, lane, is_head, line_lane, due_at, \
                       claimable_at, expires_at, spent, failures, acks)";
const PENDING_TYPES: &[Type] = &[
    Type::INT8,
    Type::INT8,
    Type::TEXT,
    Type::TEXT,
    Type::BOOL,
    Type::INT8,
    Type::INT2,
    Type::BOOL,
    Type::INT2,
    Type::INT8,
    Type::INT8,
    Type::INT8,
    Type::INT4,
    Type::INT4,
    Type::INT4,
];

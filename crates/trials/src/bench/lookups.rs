use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use bytes::Bytes;
use tidegate_adapters::SystemClock;
use tidegate_adapters::embedded::{Embedded, Options, PartyUpkeep};
use tidegate_domain::{
    Admission, Admitted, BATCH_BYTES_MAX, Filter, Ledger, MessageId, Order, Page, QueueName, QueueRule,
    Queues, Recipient,
};
use tidegate_testkit::services::{Postgres, PostgresOptions};

use super::cycle::{BATCH, body};
use super::{Scale, median};
use crate::figure::Figure;

/// Messages of one recipient, spread over all.
const EACH: u64 = 10;
const LOOK_UPS: u64 = 1_000;
const LOADED_AT_ONCE: usize = 2_048;
const TIMES_MAX: f64 = 60.0;
const SWEEPS: usize = 4;
/// What look-ups may take of the time of admissions.
const SHARE_MAX: f64 = 0.03;
/// Messages of a round of the upkeep: they end four blocks, which is the expensive part.
const UPKEEP_MESSAGES: u64 = 4 * 65_536;

/// What look-ups by recipient cost admissions, and how long they take among as many messages as there are, beside look-ups by
/// id.
pub fn lookups(dir: &Path, scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut figures = runtime.block_on(admissions(dir, scale))?;
    let embedded = open(&dir.join("lookups"), scale.lookup_messages as u64)?;
    figures.extend(runtime.block_on(among("embedded", &embedded, &embedded, scale.lookup_messages))?);
    drop(embedded);
    let server = Postgres::start(PostgresOptions { durable: true, settings: Vec::new() })?;
    let database = server.new_name();
    server.sql("postgres", &format!("CREATE DATABASE {database}"))?;
    figures.extend(runtime.block_on(async {
        let options = tidegate_postgres::Options {
            pending_max: u64::MAX >> 1,
            ..tidegate_postgres::Options::new(server.url(&database))
        };
        let ledger = tidegate_postgres::Postgres::open(options).await?;
        among("postgres", &ledger, &ledger, scale.lookup_messages_postgres).await
    })?);
    // All of it once more, by itself: a sweep does it a part at a time, while messages come.
    server.sql(&database, "DELETE FROM tidegate.party_run; UPDATE tidegate.party_mark SET past_end = 0")?;
    let begun = Instant::now();
    let blocks = server.sql(&database, "SET search_path TO tidegate; SELECT summarize_parties(1000000)")?;
    let took = begun.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a count for people")]
    let each = took * 1e6 / scale.lookup_messages_postgres as f64;
    println!("postgres: {} blocks put together in {took:.2} s, {each:.2} us a message", blocks.trim());
    Ok(figures)
}

fn open(dir: &Path, pending_max: u64) -> anyhow::Result<Embedded> {
    let queue_rule = QueueRule { order: Order::BestEffort, ..QueueRule::default() };
    let pending_max = pending_max.saturating_mul(2);
    let options = Options { pending_max, pending_hard_max: pending_max, queue_rule, ..Options::new(dir) };
    Ok(Embedded::open(options, Arc::new(SystemClock::new()))?)
}

/// What commits do for look-ups, as a share of the time of the admissions that they are commits of.
async fn admissions(dir: &Path, scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let ledger = open(&dir.join("admissions"), 1 << 30)?;
    let (mut with, mut upkeep, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    let body = body();
    let (commits, mut next) = (scale.batches_per_round as u64, 0);
    for round in 0..scale.cycle_rounds {
        let batches: anyhow::Result<Vec<_>> = (0..commits)
            .map(|_| {
                next += BATCH as u64;
                batch(next..next + BATCH as u64, u64::MAX, &body)
            })
            .collect();
        let begun = Instant::now();
        for batch in batches? {
            put(&ledger, batch).await?;
        }
        let admitted = begun.elapsed().as_secs_f64();
        let kept = upkeep_us(&dir.join(format!("upkeep-{round}.db")))?;
        #[expect(clippy::cast_precision_loss, reason = "a count for people")]
        let messages = (commits * BATCH as u64) as f64;
        let admitted = admitted / messages * 1e6;
        with.push(admitted);
        upkeep.push(kept);
        shares.push(kept / admitted);
    }
    let share = median(shares);
    println!(
        "admissions, commits of {BATCH}: {:.2} us a message, of which look-ups {:.3} us: {:.1} %",
        median(with),
        median(upkeep),
        share * 100.0
    );
    Ok(vec![Figure::head_room("lookups_share_of_admissions_head_room", share, SHARE_MAX)])
}

/// What commits do for look-ups, by message.
fn upkeep_us(database: &Path) -> anyhow::Result<f64> {
    let mut subject = PartyUpkeep::new(database)?;
    let mut took = Duration::ZERO;
    for _ in 0..UPKEEP_MESSAGES / BATCH as u64 {
        let rows = subject.rows(BATCH as u64);
        let begun = Instant::now();
        subject.keep(&rows)?;
        took += begun.elapsed();
    }
    #[expect(clippy::cast_precision_loss, reason = "a count for people")]
    let messages = UPKEEP_MESSAGES as f64;
    Ok(took.as_secs_f64() / messages * 1e6)
}

/// Every recipient has some messages, as far apart as can be.
fn batch(numbers: std::ops::Range<u64>, recipients: u64, body: &Bytes) -> anyhow::Result<Vec<Admission>> {
    let admission = |number: u64| {
        let mut admission = Admission::new(QueueName::new("bench")?, body.clone());
        admission.recipient = Some(Recipient::new(&format!("recipient {}", number % recipients))?);
        Ok(admission)
    };
    numbers.map(admission).collect()
}

async fn put(ledger: &dyn Ledger, batch: Vec<Admission>) -> anyhow::Result<Vec<MessageId>> {
    let admitted = ledger.admit(batch).await?;
    let ids = admitted.iter().map(|admitted| match admitted {
        Admitted::Admitted { id, .. } => Ok(*id),
        refused => anyhow::bail!("refused: {refused:?}"),
    });
    ids.collect()
}

async fn among(
    kind: &str,
    ledger: &dyn Ledger,
    queues: &dyn Queues,
    count: usize,
) -> anyhow::Result<Vec<Figure>> {
    let (body, recipients) = (body(), count as u64 / EACH);
    let (mut next, mut ids, mut told) = (0, Vec::new(), Instant::now());
    let started = Instant::now();
    while next < count as u64 {
        let until = (next + LOADED_AT_ONCE as u64).min(count as u64);
        ids.extend(put(ledger, batch(next..until, recipients, &body)?).await?.first());
        next = until;
        if told.elapsed() > Duration::from_secs(5) {
            told = Instant::now();
            println!("  loaded {next} of {count}");
        }
    }
    println!("{kind}: {count} messages loaded in {:.1} s", started.elapsed().as_secs_f64());
    let loaded = started.elapsed().as_secs_f64();
    // What is left to do in the background is done before anything is measured.
    let begun = Instant::now();
    for _ in 0..SWEEPS {
        ledger.sweep().await?;
    }
    let swept = begun.elapsed().as_secs_f64();
    println!("{kind}: {SWEEPS} sweeps after that took {swept:.2} s, {:.1} % of it", swept / loaded * 100.0);
    let (mut by_recipient, mut by_id) = (Vec::new(), Vec::new());
    for n in 0..LOOK_UPS {
        let number = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let begun = Instant::now();
        let recipient = Some(Recipient::new(&format!("recipient {}", number % recipients))?);
        let page = Page { max: 100, body_bytes_max: Some(BATCH_BYTES_MAX), after: None };
        let listing = queues.list(Filter { recipient, ..Filter::default() }, page).await?;
        by_recipient.push(begun.elapsed().as_secs_f64() * 1e3);
        ensure!(
            listing.messages.len() as u64 == EACH && listing.next.is_none(),
            "not one page of {EACH}: {}",
            listing.messages.len()
        );
        let id = ids[usize::try_from(number)? % ids.len()];
        let begun = Instant::now();
        ensure!(ledger.message(id).await?.is_some(), "an id is unknown");
        by_id.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    by_recipient.sort_by(f64::total_cmp);
    by_id.sort_by(f64::total_cmp);
    let at = |sorted: &[f64], percent: usize| {
        sorted.get(sorted.len() * percent / 100).copied().unwrap_or(f64::NAN)
    };
    let (half, worst) = (at(&by_recipient, 50), at(&by_recipient, 99));
    println!(
        "{kind}: {EACH} of {count} messages by recipient: p50 {half:.2} ms, p99 {worst:.2} ms; one by id: p50 {:.2} ms, p99 {:.2} ms; {:.1} times",
        at(&by_id, 50),
        at(&by_id, 99),
        half / at(&by_id, 50),
    );
    // So many look-ups by id may one by recipient cost: it finds ten messages.
    Ok(vec![Figure::head_room(
        &format!("lookup_{kind}_vs_by_id_head_room"),
        half / at(&by_id, 50),
        TIMES_MAX,
    )])
}

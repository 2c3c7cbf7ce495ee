use std::path::Path;
use std::time::Instant;

use tidegate_domain::Ledger;

use super::cycle::{BATCH, BODY_BYTES, Subject, body, rate, runtime};
use super::memory::resident_bytes;
use super::yardsticks::{BareLog, QueueTable};
use super::{Scale, median, median_ratio};
use crate::figure::Figure;

/// The whole cycle against the least that is durable and against a plain table.
pub fn cycle(dir: &Path, scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let runtime = runtime()?;
    let body = body();
    let mut ledger = Subject::open(&dir.join("cycle"))?;
    let mut log = BareLog::create(&dir.join("bare.log"))?;
    let mut table = QueueTable::create(&dir.join("table.db"))?;
    let (mut ours, mut logs, mut tables) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..scale.cycle_rounds {
        ours.push(rate(scale, || runtime.block_on(ledger.cycle(&body)))?);
        logs.push(rate(scale, || log.cycle(BATCH, &body))?);
        tables.push(rate(scale, || table.cycle(BATCH, &body))?);
    }
    let figures = vec![
        Figure::ratio("cycle_vs_bare_log", median_ratio(&ours, &logs), 0.4),
        Figure::ratio("cycle_vs_table", median_ratio(&ours, &tables), 2.0),
    ];
    let (ours, log, table) = (median(ours), median(logs), median(tables));
    println!(
        "cycle, batches of {BATCH}, {BODY_BYTES}-byte bodies: ledger {ours:.0}/s, bare log {log:.0}/s, table {table:.0}/s"
    );
    Ok(figures)
}

/// The cycle with many messages waiting, a restart, and what a waiting message costs in memory.
pub fn waiting(dir: &Path, scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let runtime = runtime()?;
    let body = body();
    let full_dir = dir.join("full");
    let before = resident_bytes()?;
    let mut full = Subject::open(&full_dir)?;
    let started = Instant::now();
    runtime.block_on(full.load(scale.waiting, &body))?;
    let loaded = started.elapsed();
    let grown = resident_bytes()?.saturating_sub(before);
    #[expect(clippy::cast_precision_loss, reason = "a count for people")]
    let (waiting, per_message) = (scale.waiting as f64, grown as f64 / scale.waiting as f64);
    println!(
        "{} waiting: loaded at {:.0}/s, {per_message:.0} bytes resident each",
        scale.waiting,
        waiting / loaded.as_secs_f64()
    );

    let mut empty = Subject::open(&dir.join("empty"))?;
    let (mut fulls, mut empties) = (Vec::new(), Vec::new());
    for _ in 0..scale.cycle_rounds {
        empties.push(rate(scale, || runtime.block_on(empty.cycle(&body)))?);
        fulls.push(rate(scale, || runtime.block_on(full.cycle(&body)))?);
    }
    let with_vs_without = median_ratio(&fulls, &empties);
    let (with, without) = (median(fulls), median(empties));
    println!("cycle with {} waiting {with:.0}/s, empty {without:.0}/s", scale.waiting);

    drop(full);
    let started = Instant::now();
    let full = Subject::open(&full_dir)?;
    let restart = started.elapsed();
    let counts = runtime.block_on(full.ledger.counts())?;
    anyhow::ensure!(counts.pending == scale.waiting as u64, "{} pending after the restart", counts.pending);
    println!("restart with {} waiting: ready after {:.2} s", scale.waiting, restart.as_secs_f64());
    Ok(vec![
        Figure::ratio("cycle_with_waiting_vs_empty", with_vs_without, 0.8),
        Figure::head_room("restart_head_room", restart.as_secs_f64(), 5.0),
        Figure::head_room("memory_head_room", per_message, 600.0),
    ])
}

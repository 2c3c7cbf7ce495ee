//! Speed and memory, printed as ratios against something measured in the same run.

mod bus;
mod chain;
mod cycle;
mod ledger;
mod lookups;
mod memory;
pub mod noop;
pub mod policies;
mod policies_http;
mod postgres;
mod pull;
mod queues;
mod redis;
mod send;
mod server;
pub mod sink;
mod slots;
mod webhook;
mod yardsticks;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum as _;

use crate::figure::{self, Figure};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which parts; all of them when none is named.
    #[arg(value_enum)]
    parts: Vec<Part>,
    /// A smoke run: seconds instead of minutes, and its figures mean little.
    #[arg(long)]
    quick: bool,
    /// Where the data lies while it is measured: a directory on the disk in question.
    #[arg(long)]
    dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// admit → claim → settle on the embedded ledger, against a bare log and a plain SQLite table
    Ledger,
    /// The same with a million messages waiting; restart and memory
    Waiting,
    /// Durable POST /api/send over 64 connections, against the same server without its ledger
    Send,
    /// Policies in process, over HTTP and in memory; slots for a burst of events over 50 connections
    Limits,
    /// Pushes, pops, webhooks, and what a backlog costs those who are served
    Queues,
    /// Policies on Redis, against redis-benchmark with the same call, and against a PING
    Redis,
    /// Durable sends on PostgreSQL against pgbench; the whole way of a message; two gateways against one
    Postgres,
    /// Kafka and RabbitMQ: the whole way of a message against none, the relay against bare producers, an outage
    Bus,
    /// One recipient's messages, one after the other: on both ledgers and over both buses
    Chain,
    /// Look-ups by recipient among many messages, on both ledgers, and what they cost admissions
    Lookups,
}

/// How long and how often things are measured.
#[derive(Debug, Clone, Copy)]
struct Scale {
    rounds: usize,
    /// Rounds of the ledger's cycle, each long enough for a checkpoint: what a checkpoint costs belongs to it.
    cycle_rounds: usize,
    batches_per_round: usize,
    waiting: usize,
    send_seconds: f64,
    slot_events: usize,
    webhook_messages: usize,
    policy_requests: usize,
    relay_messages: usize,
    outage_messages: usize,
    outage: Duration,
    chain_messages: usize,
    lookup_messages: usize,
    lookup_messages_postgres: usize,
}

impl Scale {
    const FULL: Self = Self {
        rounds: 9,
        cycle_rounds: 25,
        batches_per_round: 120,
        waiting: 1_000_000,
        send_seconds: 3.0,
        slot_events: 500_000,
        webhook_messages: 60_000,
        policy_requests: 500_000,
        relay_messages: 50_000,
        outage_messages: 50_000,
        outage: Duration::from_secs(60),
        chain_messages: 3_000,
        lookup_messages: 10_000_000,
        lookup_messages_postgres: 10_000_000,
    };
    const QUICK: Self = Self {
        rounds: 3,
        cycle_rounds: 3,
        batches_per_round: 10,
        waiting: 20_000,
        send_seconds: 0.3,
        slot_events: 5_000,
        webhook_messages: 2_000,
        policy_requests: 20_000,
        relay_messages: 4_000,
        outage_messages: 2_000,
        outage: Duration::from_secs(2),
        chain_messages: 200,
        lookup_messages: 150_000,
        lookup_messages_postgres: 20_000,
    };
}

/// True when no figure is short.
pub fn run(args: &Args) -> anyhow::Result<bool> {
    let scale = if args.quick { Scale::QUICK } else { Scale::FULL };
    let parts = if args.parts.is_empty() { Part::value_variants() } else { &args.parts };
    let dir = match &args.dir {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    println!("data in {}, {} cores", dir.path().display(), std::thread::available_parallelism()?);
    let mut figures: Vec<Figure> = Vec::new();
    for part in parts {
        figures.extend(match part {
            Part::Ledger => ledger::cycle(dir.path(), scale)?,
            Part::Waiting => ledger::waiting(dir.path(), scale)?,
            Part::Send => send::send(dir.path(), scale)?,
            Part::Limits => limits(dir.path(), scale)?,
            Part::Queues => queues(dir.path(), scale)?,
            Part::Redis => redis::policies(scale)?,
            Part::Postgres => postgres::postgres(dir.path(), scale)?,
            Part::Bus => bus::bus(dir.path(), scale)?,
            Part::Chain => chain::chain(dir.path(), scale)?,
            Part::Lookups => lookups::lookups(dir.path(), scale)?,
        });
    }
    println!();
    let none_short = figure::close(&figures);
    if args.quick {
        println!("A smoke run: its figures are not measurements, and none counts as short.");
    }
    Ok(none_short || args.quick)
}

fn limits(dir: &Path, scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let mut figures = policies::memory(scale)?;
    figures.extend(policies::in_process(scale)?);
    figures.extend(policies_http::over_http(dir, scale)?);
    figures.extend(slots::slots(dir, scale)?);
    Ok(figures)
}

/// The middle of what was measured: one slow round on a shared machine says nothing.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// How one thing does against another that was measured in turn with it: the middle of the rounds' ratios, so that a
/// machine that slows down does so for both.
fn median_ratio(of: &[f64], against: &[f64]) -> f64 {
    median(of.iter().zip(against).map(|(of, against)| of / against).collect())
}

fn queues(dir: &Path, scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let mut figures = pull::pull(dir, scale)?;
    figures.extend(webhook::webhook(dir, scale)?);
    figures.extend(queues::backlog(dir, scale)?);
    Ok(figures)
}

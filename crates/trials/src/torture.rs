//! Kill -9 and power cuts under load, judged by what the client was told and what the provider received.
//!
//! One gateway lives many short lives on one data directory. Its clients number each user's messages and send
//! them one after the other, each under its own idempotency key; an unanswered one is sent again, under the same
//! key, in the next life. Beside them another client lists all messages, page by page. What the `log` channel
//! printed in all lives is the provider's journal.

mod chance;
mod cluster;
mod lives;
mod look_ups;
mod toll;
mod traffic;

use std::path::PathBuf;

use anyhow::{Context, ensure};
use tidegate_testkit::judge::Verdict;

use self::lives::{End, Lives};
use self::toll::Toll;
use crate::figure::{Figure, close};

/// Cuts in `--prove-red`: each alone loses something, as a rule.
const RED_CUTS: u32 = 5;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// Lives that end by kill -9.
    #[arg(long, default_value_t = 200)]
    kills: u32,
    /// Lives that end by a power cut (needs root: an ext4 image mounted by loop).
    #[arg(long, default_value_t = 50)]
    power_cuts: u32,
    /// A smoke run: a few of each.
    #[arg(long)]
    quick: bool,
    /// The ledger's sync setting: "full" or "off".
    #[arg(long, default_value = "full")]
    sync: String,
    /// Cuts the power with sync off, and succeeds only if that loses messages: proof that this trial can fail.
    #[arg(long)]
    prove_red: bool,
    /// The gateway. By default the one beside this program.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Repeats the times and choices of an earlier run.
    #[arg(long)]
    seed: Option<u64>,
    /// Keep logs, deliveries and data of a run here instead of in a temporary directory.
    #[arg(long)]
    keep: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Instead: processes, database and Redis of a cluster fail by turns.
    Cluster(cluster::Args),
}

/// True when every figure is met.
pub async fn run(args: Args) -> anyhow::Result<bool> {
    let binary = match &args.binary {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("tidegate"),
    };
    ensure!(
        binary.exists(),
        "no gateway at {}: cargo build -p tidegate, in the same profile",
        binary.display()
    );
    if let Some(What::Cluster(args)) = &args.what {
        return cluster::run(&binary, args).await;
    }
    let seed = args.seed.unwrap_or_else(chance::fresh_seed);
    println!("torture: seed {seed}, gateway {}", binary.display());
    if args.prove_red {
        return prove_red(binary, seed, args.keep).await;
    }
    let (kills, cuts) = if args.quick { (8, 3) } else { (args.kills, args.power_cuts) };
    let mut totals = Vec::new();
    for (end, lives) in [(End::Kill, kills), (End::PowerCut, cuts)] {
        if lives == 0 {
            continue;
        }
        if end == End::PowerCut && !tidegate_testkit::can_cut_power() {
            ensure!(
                args.quick,
                "power cuts need root, loop devices and mkfs.ext4; --power-cuts 0 leaves them out"
            );
            println!("left out: power cuts, which need root, loop devices and mkfs.ext4");
            continue;
        }
        let (toll, verdict) = torture(&binary, end, lives, &args.sync, seed, args.keep.clone()).await?;
        totals.push((end, toll, verdict));
    }
    Ok(close(&figures(&totals)))
}

async fn torture(
    binary: &std::path::Path,
    end: End,
    count: u32,
    sync: &str,
    seed: u64,
    keep: Option<PathBuf>,
) -> anyhow::Result<(Toll, Verdict)> {
    let mut lives = Lives::new(binary, end, sync, seed, keep)?;
    lives.configure().await?;
    for number in 1..=count {
        lives.live().await.with_context(|| format!("life {number}"))?;
        if number % 10 == 0 || number == count {
            println!("{end}: {number} of {count}, {}", lives.toll());
        }
    }
    lives.last_life().await.context("the last life")?;
    let verdict = lives.judge();
    println!("{end}: {}\n{verdict}", lives.toll());
    Ok((lives.toll().clone(), verdict))
}

fn figures(totals: &[(End, Toll, Verdict)]) -> Vec<Figure> {
    let sum = |part: &dyn Fn(&Verdict) -> usize| totals.iter().map(|(.., verdict)| part(verdict)).sum();
    for (end, toll, verdict) in totals {
        println!(
            "{} {end}s ({} of them during recovery), {} messages acknowledged, {} delivered again",
            toll.ends, toll.ends_in_recovery, verdict.acknowledged, verdict.duplicated
        );
    }
    let unbalanced = totals.iter().map(|(_, toll, _)| toll.unbalanced).sum();
    let repeated = totals.iter().map(|(_, toll, _)| toll.repeated).sum();
    vec![
        Figure::none_of("torture_lost", sum(&|verdict| verdict.lost), "messages"),
        Figure::none_of("torture_phantom", sum(&|verdict| verdict.phantom), "messages"),
        Figure::none_of("torture_out_of_order", sum(&|verdict| verdict.out_of_order), "messages"),
        Figure::none_of("torture_over_quota", sum(&|verdict| verdict.over_quota), "messages"),
        Figure::none_of("torture_charged_for_nothing", sum(&|verdict| verdict.short_changed), "users"),
        Figure::none_of("torture_split_keys", sum(&|verdict| verdict.split_keys), "keys"),
        Figure::none_of("torture_repeated_without_a_crash", repeated, "messages"),
        Figure::none_of("torture_unbalanced", unbalanced, "books"),
    ]
}

/// A trial that can't fail proves nothing: without fsync the same loop has to lose messages.
async fn prove_red(binary: PathBuf, seed: u64, keep: Option<PathBuf>) -> anyhow::Result<bool> {
    ensure!(tidegate_testkit::can_cut_power(), "power cuts need root, loop devices and mkfs.ext4");
    let mut lives = Lives::new(&binary, End::PowerCut, "off", seed, keep)?;
    lives.configure().await?;
    let mut broken = None;
    for _ in 0..RED_CUTS {
        // A ledger that no longer opens has lost its messages too, and says so itself.
        if let Err(error) = lives.live().await {
            broken = Some(error);
            break;
        }
    }
    if broken.is_none() {
        broken = lives.last_life().await.err();
    }
    if let Some(error) = broken {
        println!("the ledger did not come back: {error:#}");
    }
    let verdict = lives.judge();
    println!("sync off: {}\n{verdict}", lives.toll());
    let red = verdict.lost > 0;
    println!(
        "prove-red: {}",
        if red { "ok, without fsync messages are lost" } else { "short, nothing was lost" }
    );
    Ok(red)
}

//! Three gateways and two senders on one PostgreSQL and one Redis, with a bus if wanted: faults by chance, under load, one after the other.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use tidegate_testkit::cluster::{
    BusKind, Cluster, ClusterOptions, ClusterVerdict, Fault, READY_WITHIN, Sabotage, Traffic,
};

use super::chance::{Chance, fresh_seed};
use crate::figure::{Figure, close};

/// Between two faults: enough to see that everything goes on.
const MESSAGES: usize = 100;
/// With a fault planted, messages that pass before the first fault from outside.
const RED_MESSAGES: usize = 600;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Faults, one after the other.
    #[arg(long, default_value_t = 60)]
    faults: usize,
    /// Plants one fault after the other in the ledger itself, and succeeds only if each is found: proof that this trial
    /// can fail.
    #[arg(long)]
    prove_red: bool,
    /// What stands between gateways and senders, and has faults of its own.
    #[arg(long, value_enum, default_value_t)]
    bus: Bus,
    /// Judges everything but how long nodes take to be ready again: for a machine that has other things to do.
    #[arg(long)]
    untimed: bool,
    /// Repeats the choices of an earlier run.
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum Bus {
    #[default]
    None,
    Kafka,
    Rabbitmq,
}

impl Bus {
    fn kind(self) -> BusKind {
        match self {
            Self::None => BusKind::None,
            Self::Kafka => BusKind::Kafka,
            Self::Rabbitmq => BusKind::RabbitMq,
        }
    }

    fn faults(self) -> &'static [Fault] {
        match self {
            Self::None => &[],
            Self::Kafka => &[Fault::KillBus, Fault::StopBus, Fault::ReplayBus],
            Self::Rabbitmq => &[Fault::KillBus, Fault::StopBus, Fault::FillBus, Fault::LoseBus],
        }
    }
}

/// What a run came to.
struct Toll {
    verdict: ClusterVerdict,
    ready_after_max: Duration,
    deadlocks: usize,
}

/// True when every figure is met.
pub async fn run(binary: &Path, args: &Args) -> anyhow::Result<bool> {
    let seed = args.seed.unwrap_or_else(fresh_seed);
    println!("torture of a cluster: seed {seed}, gateway {}", binary.display());
    if args.prove_red {
        return prove_red(binary).await;
    }
    let mut chance = Chance::new(seed);
    let faults: Vec<Fault> = (0..args.faults).map(|_| any_fault(&mut chance, args.bus)).collect();
    let options = ClusterOptions { bus: args.bus.kind(), ..ClusterOptions::new(binary) };
    let cluster = Cluster::start(options).await?;
    let toll = suffer(cluster, MESSAGES, &faults).await?;
    println!("{}", toll.verdict);
    let mut figures = figures(&toll);
    if !args.untimed {
        figures.push(ready_again(&toll));
    }
    Ok(close(&figures))
}

async fn suffer(mut cluster: Cluster, messages: usize, faults: &[Fault]) -> anyhow::Result<Toll> {
    let repeats_max = faults.iter().map(|fault| fault.repeats_max(cluster.senders.len())).sum();
    let traffic = Traffic::start(&cluster).await?;
    traffic.progress(&cluster, messages).await?;
    let mut ready_after_max = Duration::ZERO;
    for (number, fault) in faults.iter().enumerate() {
        let ready_after = cluster.suffer(*fault).await.with_context(|| format!("{fault:?}"))?;
        traffic.progress(&cluster, messages).await.with_context(|| format!("after {fault:?}"))?;
        println!("{} of {}: {fault:?}, ready after {ready_after:.1?}", number + 1, faults.len());
        ready_after_max = ready_after_max.max(ready_after);
    }
    let (notes, totals) = traffic.finish(&cluster).await?;
    let verdict = ClusterVerdict::new(&notes, &cluster.provider.journal(), &totals, repeats_max);
    Ok(Toll { verdict, ready_after_max, deadlocks: cluster.deadlocks()? })
}

fn any_fault(chance: &mut Chance, bus: Bus) -> Fault {
    let number = |chance: &mut Chance, below| usize::try_from(chance.between(0, below)).unwrap_or(0);
    let (gateway, sender) = (number(chance, 3), number(chance, 2));
    // Every other one is the bus's, where there is one.
    if !bus.faults().is_empty() && number(chance, 2) == 0 {
        return bus.faults()[number(chance, bus.faults().len() as u64)];
    }
    match chance.between(0, 10) {
        0 => Fault::KillGateway(gateway),
        1 => Fault::StopGateway(gateway),
        2 => Fault::KillSender(sender),
        3 => Fault::StopSender(sender),
        4 => Fault::KillDatabase,
        5 => Fault::CutDatabase,
        6 => Fault::StallDatabase,
        7 => Fault::KillRedis,
        8 => Fault::FlushRedis,
        _ => Fault::StallRedis,
    }
}

fn figures(toll: &Toll) -> Vec<Figure> {
    let ClusterVerdict { ordered, contended, repeated, repeats_max, faults } = &toll.verdict;
    let sum = |part: &dyn Fn(&tidegate_testkit::judge::Verdict) -> usize| part(ordered) + part(contended);
    let unexcused = repeated.saturating_sub(*repeats_max);
    vec![
        Figure::none_of("cluster_lost", sum(&|verdict| verdict.lost), "messages"),
        Figure::none_of("cluster_phantom", sum(&|verdict| verdict.phantom), "messages"),
        Figure::none_of("cluster_out_of_order", ordered.out_of_order, "messages"),
        Figure::none_of("cluster_over_quota", sum(&|verdict| verdict.over_quota), "messages"),
        Figure::none_of("cluster_charged_for_nothing", sum(&|verdict| verdict.short_changed), "users"),
        Figure::none_of("cluster_split_keys", sum(&|verdict| verdict.split_keys), "keys"),
        Figure::none_of("cluster_repeated_without_excuse", unexcused, "messages"),
        Figure::none_of("cluster_other_faults", faults.len(), "faults"),
        Figure::none_of("cluster_deadlocks", toll.deadlocks, "deadlocks"),
    ]
}

fn ready_again(toll: &Toll) -> Figure {
    let took = toll.ready_after_max.as_secs_f64();
    Figure::head_room("cluster_ready_again", took, READY_WITHIN.as_secs_f64())
}

async fn prove_red(binary: &Path) -> anyhow::Result<bool> {
    let mut all_found = true;
    for sabotage in Sabotage::ALL {
        let options = sabotage.prepare(ClusterOptions::new(PathBuf::from(binary)));
        let faults: &[Fault] = if sabotage == Sabotage::Durability { &[Fault::KillDatabase] } else { &[] };
        let cluster = Cluster::start(options).await?;
        cluster.sabotage(sabotage)?;
        // A ledger that gets stuck over it has been found out, too.
        let found = match suffer(cluster, RED_MESSAGES, faults).await {
            Ok(toll) => toll.verdict.check().err(),
            Err(error) => Some(error),
        };
        match &found {
            Some(error) => println!("prove-red {sabotage:?}: ok, found\n{error:#}"),
            None => println!("prove-red {sabotage:?}: short, nothing was found"),
        }
        all_found &= found.is_some();
    }
    Ok(all_found)
}

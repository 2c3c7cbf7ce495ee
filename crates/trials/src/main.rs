//! Trials of the whole product: what it promises, measured and tortured from outside. `cargo xtask bench` and
//! `cargo xtask torture` run it.

mod bench;
mod figure;
mod torture;

use std::process::ExitCode;

use clap::Parser;

/// As in the gateway, so that what is measured in this process is measured with the same allocator.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[derive(Debug, Parser)]
#[command(about = "Trials of the whole gateway")]
enum Trial {
    /// Measures speed and memory against yardsticks of the same run
    Bench(bench::Args),
    /// Kills the gateway and cuts its power under load, and looks for lost messages
    Torture(torture::Args),
    /// What a bucket costs in memory, for the bench
    #[command(hide = true)]
    BucketMemory(bench::policies::MemoryArgs),
    /// The gateway without a ledger, for the bench
    #[command(hide = true)]
    NoopServer(bench::noop::Args),
    /// A provider that takes everything, for the bench
    #[command(hide = true)]
    SinkServer(bench::sink::Args),
}

fn main() -> anyhow::Result<ExitCode> {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let passed = match Trial::parse() {
        Trial::Bench(args) => bench::run(&args)?,
        Trial::Torture(args) => runtime()?.block_on(torture::run(args))?,
        Trial::BucketMemory(args) => bench::policies::print_memory(&args).map(|()| true)?,
        Trial::SinkServer(args) => runtime()?.block_on(bench::sink::serve(&args)).map(|()| true)?,
        Trial::NoopServer(args) => runtime()?.block_on(bench::noop::serve(&args)).map(|()| true)?,
    };
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

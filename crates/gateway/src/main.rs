use std::process::ExitCode;

use clap::Parser as _;

/// Memory that is free for about ten seconds goes back to the system, also while the process is idle.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    tidegate::cli::Cli::parse().run()
}

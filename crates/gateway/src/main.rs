use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    tidegate::cli::Cli::parse().run()
}

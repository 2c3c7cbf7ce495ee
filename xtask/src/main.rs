//! The project's commands: `cargo xtask <command>`. Depends on nothing, so that it starts at once.

mod artifacts;
mod busy;
mod check;
mod command;
mod explore;
mod job;
mod report;
mod runner;
mod suite;
mod tools;
mod unused;

use std::process::ExitCode;

use command::{cargo, trials};

const USAGE: &str = "\
cargo xtask check            formatting, lints, dependencies, compose.yaml
cargo xtask dependencies     none unused, none that deny.toml forbids
cargo xtask compose          compose.yaml against the schema of its specification
cargo xtask test             everything: check, tests, smoke runs of the bench and the torture
    --quick                  formatting and the tests that need no other servers
    --busy                   everything, while both processors and the disk are kept busy
    [NAME ...]               the jobs whose name has one of these words (--list shows the names)
cargo xtask explore          the random tests on fresh seeds, over every ledger and every bus
    --minutes N              for so long; 10 unless told otherwise
    [NAME ...]               those whose name has one of these words (--list shows the names)
cargo xtask bench [ARGS]     the figures (bench --help lists the parts)
cargo xtask torture [ARGS]   200 kill -9 and 50 power cuts under load, unless told otherwise (torture --help);
                             torture cluster: 60 faults of several nodes, their database, their Redis and
                             their bus (--bus kafka or rabbitmq)";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    let result = match name.as_str() {
        "check" => check::all(),
        "dependencies" => check::dependencies(),
        "compose" => check::compose(),
        "test" => suite::Options::parse(&rest).and_then(|options| suite::run(&options)),
        "explore" => explore::Options::parse(&rest).and_then(|options| explore::run(&options)),
        "bench" => dist().and_then(|()| trials("bench", &rest)),
        "torture" => tools::ensure().and_then(|_| dist()).and_then(|()| trials("torture", &rest)),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// Figures come from the binary that packages contain.
fn dist() -> Result<(), String> {
    cargo(&[
        "build",
        "--profile",
        "dist",
        "--locked",
        "--package",
        "tidegate",
        "--package",
        "tidegate-trials",
    ])
}

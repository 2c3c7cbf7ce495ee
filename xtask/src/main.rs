//! The project's commands: `cargo xtask <command>`. Depends on nothing, so that it starts at once.

mod command;
mod compose;
mod tools;

use std::process::ExitCode;

use command::{cargo, cargo_with, trials};

const USAGE: &str = "\
cargo xtask check            formatting and lints
cargo xtask compose          compose.yaml against its schema
cargo xtask test             everything: check, tests, smoke runs of the bench and the torture
cargo xtask bench [ARGS]     the figures (bench --help lists the parts)
cargo xtask torture [ARGS]   200 kill -9 and 50 power cuts under load, unless told otherwise (torture --help);
                             torture cluster: 60 faults of several nodes, their database, their Redis and
                             their bus (--bus kafka or rabbitmq)";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    let result = match name.as_str() {
        "check" => check(),
        "compose" => compose::check(),
        "test" => test(),
        "bench" => release().and_then(|()| trials("bench", &rest)),
        "torture" => tools::ensure().and_then(|_| release()).and_then(|()| trials("torture", &rest)),
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

fn check() -> Result<(), String> {
    cargo(&["fmt", "--all", "--check"])?;
    cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])
}

/// What CI runs. The release build comes first: the smoke runs use the very binary that users get.
fn test() -> Result<(), String> {
    let power_cuts = tools::ensure()?;
    check()?;
    compose::check()?;
    release()?;
    // Most of them wait for servers rather than compute. A failure must not hide the next one.
    cargo_with(&["test", "--workspace", "--locked", "--no-fail-fast"], &[("RUST_TEST_THREADS", "4")])?;
    api_on_postgres()?;
    large_tables()?;
    trials("bench", &["--quick".into()])?;
    trials("torture", &["--quick".into()])?;
    if power_cuts {
        // A test that has never been seen red proves nothing: without fsync a power cut must lose messages.
        trials("torture", &["--prove-red".into()])?;
    }
    println!("all passed");
    Ok(())
}

/// The tests through the API once more, on the other ledger. Left out is what is about a directory that one process
/// owns, and what has a server of its own already.
fn api_on_postgres() -> Result<(), String> {
    const ABOUT_A_DIRECTORY: [&str; 14] = [
        "bus::",
        "clocks::",
        "disk::",
        "full_disk::",
        "kills::",
        "postgres::",
        "redis::",
        "roles::a_gateway",
        "roles::an_inbox",
        "a_second_process_on_the_directory_is_refused",
        "a_weaker_promise_is_named_in_the_answer_and_in_the_log",
        "check_config_names_every_problem_or_every_source",
        "a_kill_voids_leases_and_loses_nothing",
        "a_damaged_message",
    ];
    let mut args =
        vec!["test", "--locked", "--package", "tidegate", "--test", "e2e", "--", "--test-threads=4"];
    args.extend(ABOUT_A_DIRECTORY.into_iter().flat_map(|name| ["--skip", name]));
    cargo_with(&args, &[("TIDEGATE_TEST_LEDGER", "postgres")])
}

/// What operations on PostgreSQL read when its tables are full. By itself: making them keeps the disk busy.
fn large_tables() -> Result<(), String> {
    let test =
        ["test", "--locked", "--package", "tidegate-postgres", "--test", "postgres", "no_operation_reads"];
    cargo_with(&test, &[("TIDEGATE_TEST_LARGE", "1")])
}

fn release() -> Result<(), String> {
    cargo(&["build", "--release", "--locked", "--package", "tidegate", "--package", "tidegate-trials"])
}

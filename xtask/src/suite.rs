//! `cargo xtask test`: what is run, and beside what.

use std::process::Command;

use crate::artifacts::{self, TestProgram, binary};
use crate::busy::Busy;
use crate::command::target;
use crate::job::Job;
use crate::report::{self, Steps};
use crate::{check, runner, tools};

/// Tests that may run at once, over all jobs: most wait for a server or a clock.
const THREADS: usize = 14;

/// Programs that need other servers.
const WITH_SERVERS: [&str; 12] = [
    "tidegate/cluster",
    "tidegate/compose",
    "tidegate/moves",
    "tidegate-kafka/bus",
    "tidegate-kafka/faults",
    "tidegate-postgres/postgres",
    "tidegate-rabbitmq/rabbitmq",
    "tidegate-redis/buckets",
    "tidegate-redis/quotas",
    "tidegate-testkit/kafka",
    "tidegate-testkit/rabbitmq",
    "tidegate-testkit/services",
];

/// Tests of the API that start other servers.
const E2E_WITH_SERVERS: [&str; 6] = ["bus::", "clocks::", "postgres::", "redis::", "roles::", "transfer::"];

/// Tests of the API about a directory that one process owns, or with a server of their own already.
const ABOUT_A_DIRECTORY: [&str; 15] = [
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
    // Without files PostgreSQL is away, too.
    "an_attempt_without_a_file",
];

#[derive(Debug, Default)]
pub struct Options {
    quick: bool,
    busy: bool,
    list: bool,
    /// Parts of names; none: everything.
    names: Vec<String>,
}

impl Options {
    pub fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        for arg in args {
            match arg.as_str() {
                "--quick" => options.quick = true,
                "--busy" => options.busy = true,
                "--list" => options.list = true,
                name if !name.starts_with('-') => options.names.push(name.to_owned()),
                other => return Err(format!("cargo xtask test has no {other}\n{}", crate::USAGE)),
            }
        }
        Ok(options)
    }

    fn wants(&self, job: &Job) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| job.name.contains(name.as_str()))
    }
}

pub fn run(options: &Options) -> Result<(), String> {
    let mut steps = Steps::default();
    let mut left_out = Vec::new();
    let tools = if options.quick { tools::ensure_without_servers } else { tools::ensure };
    let root = steps.time("tools", tools)?;
    if options.quick {
        left_out.push(
            "--quick: lints, tests that need other servers, smoke runs of bench and torture".to_owned(),
        );
    }
    if !root {
        left_out.push("not root: whatever mounts a disk of its own (power cuts, full disk)".to_owned());
    }
    steps.time("formatting", check::formatting)?;
    let programs = steps.time("build", artifacts::build)?;
    let mut jobs = if options.quick { quick(&programs) } else { everything(&programs, root)? };
    jobs.retain(|job| options.wants(job));
    if options.list {
        jobs.iter().for_each(|job| println!("{}", job.name));
        return Ok(());
    }
    if jobs.is_empty() {
        return Err(format!("no job is called {}; --list shows their names", options.names.join(" or ")));
    }
    let busy = options.busy.then(Busy::start).transpose()?;
    let finished = steps.time("tests", || runner::run(jobs, THREADS, &target().join("test-logs")))?;
    drop(busy);
    report::close(&steps, &finished, &left_out)
}

/// What needs nothing but this machine.
fn quick(programs: &[TestProgram]) -> Vec<Job> {
    let alone = programs.iter().filter(|program| !WITH_SERVERS.contains(&program.name().as_str()));
    let job = |program: &TestProgram| match program.name().as_str() {
        "tidegate/e2e" => tests(program).skipping(&E2E_WITH_SERVERS),
        // The quota accelerator's tests are beside its code, and start a Redis.
        "tidegate" => tests(program).skipping(&["accelerator::"]),
        _ => tests(program),
    };
    alone.map(job).collect()
}

fn everything(programs: &[TestProgram], power_cuts: bool) -> Result<Vec<Job>, String> {
    let find = |name: &str| {
        let found = programs.iter().find(|program| program.name() == name);
        found.ok_or_else(|| format!("the build made no {name}"))
    };
    let mut jobs: Vec<_> = programs.iter().map(tests).collect();
    jobs.push(
        Job::tests(find("tidegate/e2e")?, 4, 120)
            .named("tidegate/e2e on PostgreSQL")
            .with("TIDEGATE_TEST_LEDGER", "postgres")
            .skipping(&ABOUT_A_DIRECTORY),
    );
    jobs.push(
        Job::tests(find("tidegate-postgres/postgres")?, 4, 90)
            .named("large tables on PostgreSQL")
            .with("TIDEGATE_TEST_LARGE", "1")
            .only(&["no_operation_reads"]),
    );
    jobs.push(Job::whole("lints", check::lints(), "cargo xtask check", 2, 1_000));
    for (name, seconds) in [("dependencies", 900), ("compose", 800)] {
        let mut command = Command::new(own_program()?);
        command.arg(name);
        jobs.push(Job::whole(name, command, &format!("cargo xtask {name}"), 1, seconds));
    }
    jobs.push(trial(&["bench", "--quick"], 100));
    jobs.push(trial(&["torture", "--quick"], 60));
    if power_cuts {
        // A test that has never been seen red proves nothing: without fsync a power cut must lose messages.
        jobs.push(trial(&["torture", "--prove-red"], 30));
    }
    Ok(jobs)
}

fn tests(program: &TestProgram) -> Job {
    let name = program.name();
    let known = LONG.iter().find(|(long, ..)| *long == name);
    let (_, threads, seconds) = known.copied().unwrap_or(("", 4, 10));
    Job::tests(program, threads, seconds)
}

/// Programs that take long: how many tests at once, and seconds on two quiet cores.
const LONG: [(&str, usize, u32); 9] = [
    ("tidegate-postgres/postgres", 4, 258),
    ("tidegate/cluster", 3, 213),
    ("tidegate/compose", 2, 150),
    ("tidegate-kafka/bus", 4, 110),
    ("tidegate-kafka/faults", 4, 100),
    ("tidegate-testkit/rabbitmq", 1, 90),
    ("tidegate-testkit/kafka", 2, 80),
    ("tidegate/e2e", 4, 80),
    ("tidegate-rabbitmq/rabbitmq", 4, 59),
];

fn trial(args: &[&str], seconds: u32) -> Job {
    let mut command = Command::new(binary("tidegate-trials"));
    command.args(args);
    let line = format!("target/debug/tidegate-trials {}", args.join(" "));
    Job::whole(&args.join(" "), command, &line, 3, seconds)
}

fn own_program() -> Result<std::path::PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("where this program is: {error}"))
}

//! `cargo xtask explore`: the random tests on fresh seeds. `cargo xtask test` runs them on the same seeds every time.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::artifacts::{self, TestProgram, binary};
use crate::command::target;
use crate::job::{Finished, Job};
use crate::{runner, tools};

const MINUTES: u64 = 10;
/// Tests at once. They compute more than those of the test command, which mostly wait.
const THREADS: usize = 6;
/// One turn of a job; then the others have theirs.
const SLICE_SECONDS: u64 = 60;
const SLICE_SECONDS_MIN: u64 = 5;

/// Random tests: the program, parts of their names, and their share of a turn in quarters. Where thousands of cases take a
/// second, a short turn is enough.
const TESTS: [(&str, &[&str], u64); 9] = [
    ("tidegate-adapters", &["crashes_anywhere"], 4),
    ("tidegate-adapters/embedded", &["with_the_model"], 4),
    ("tidegate-adapters/buckets", &["model::it_answers", "under_pressure_nobody", "as_governor_does"], 1),
    ("tidegate-postgres/postgres", &["model::"], 4),
    ("tidegate-redis/buckets", &["model::it_answers"], 1),
    ("tidegate/moves", &["with_the_model"], 4),
    ("tidegate-testkit/bus", &["random_traffic"], 1),
    ("tidegate-kafka/bus", &["random_traffic"], 4),
    ("tidegate-rabbitmq/rabbitmq", &["random_traffic"], 4),
];

/// Processes that are killed at random moments: one seed in each run.
const TRIALS: [&[&str]; 4] = [
    &["torture", "--kills", "6", "--power-cuts", "2"],
    &["torture", "cluster", "--faults", "4", "--untimed"],
    &["torture", "cluster", "--faults", "4", "--untimed", "--bus", "kafka"],
    &["torture", "cluster", "--faults", "4", "--untimed", "--bus", "rabbitmq"],
];

#[derive(Debug)]
pub struct Options {
    minutes: u64,
    list: bool,
    names: Vec<String>,
}

/// What a job has come to so far.
#[derive(Debug, Default)]
struct Tally {
    name: String,
    seeds: u64,
    failures: Vec<String>,
}

impl Options {
    pub fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Self { minutes: MINUTES, list: false, names: Vec::new() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--minutes" => {
                    let minutes =
                        args.next().and_then(|text| text.parse().ok()).filter(|minutes| *minutes > 0);
                    options.minutes = minutes.ok_or("--minutes needs a number from 1")?;
                }
                "--list" => options.list = true,
                name if !name.starts_with('-') => options.names.push(name.to_owned()),
                other => return Err(format!("cargo xtask explore has no {other}\n{}", crate::USAGE)),
            }
        }
        Ok(options)
    }
}

pub fn run(options: &Options) -> Result<(), String> {
    let power_cuts = tools::ensure()?;
    let programs = artifacts::build()?;
    let jobs = |slice| {
        let mut jobs = jobs(&programs, power_cuts, slice)?;
        let wanted = |name: &str| options.names.iter().any(|part| name.contains(part.as_str()));
        jobs.retain(|job| options.names.is_empty() || wanted(&job.name));
        Ok::<_, String>(jobs)
    };
    let mut tallies: Vec<_> =
        jobs(0)?.into_iter().map(|job| Tally { name: job.name, ..Tally::default() }).collect();
    if options.list {
        tallies.iter().for_each(|tally| println!("{}", tally.name));
        return Ok(());
    }
    if tallies.is_empty() {
        return Err(format!("no job is called {}; --list shows their names", options.names.join(" or ")));
    }
    let begun = Instant::now();
    let until = begun + Duration::from_secs(60 * options.minutes);
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        let threads: usize = jobs(0)?.iter().map(|job| job.threads).sum();
        // All of them have a turn in what is left.
        let fair = left.as_secs() * THREADS as u64 / threads.max(THREADS) as u64;
        let slice = fair.clamp(SLICE_SECONDS_MIN, SLICE_SECONDS);
        let finished = runner::run(jobs(slice)?, THREADS, &target().join("explore-logs"))?;
        for job in &finished {
            let tally = tallies.iter_mut().find(|tally| tally.name == job.name);
            tally.ok_or("a job without a tally")?.add(job)?;
        }
        let seeds: u64 = tallies.iter().map(|tally| tally.seeds).sum();
        println!("-- {} of {} minutes, {seeds} seeds", begun.elapsed().as_secs() / 60, options.minutes);
    }
    close(&tallies)
}

fn jobs(programs: &[TestProgram], power_cuts: bool, slice: u64) -> Result<Vec<Job>, String> {
    let mut jobs = Vec::new();
    for (name, filters, share) in TESTS {
        let program = programs.iter().find(|program| program.name() == name);
        let program = program.ok_or_else(|| format!("the build made no {name}"))?;
        let mut job = Job::tests(program, 2, 1).only(filters);
        job.command.env("TIDEGATE_EXPLORE_SECONDS", (slice * share).div_ceil(4).to_string());
        jobs.push(job);
    }
    for args in TRIALS {
        let mut args = args.to_vec();
        if !power_cuts && args.contains(&"--power-cuts") {
            args.truncate(args.len() - 1);
            args.push("0");
        }
        let mut command = Command::new(binary("tidegate-trials"));
        command.args(&args);
        let line = format!("target/debug/tidegate-trials {}", args.join(" "));
        jobs.push(Job::whole(&args.join(" "), command, &line, 2, 1));
    }
    Ok(jobs)
}

impl Tally {
    fn add(&mut self, job: &Finished) -> Result<(), String> {
        let explored = numbers_after(&job.said, "explored ");
        self.seeds += explored.sum::<u64>() + numbers_after(&job.said, ": seed ").count() as u64;
        if job.passed {
            return Ok(());
        }
        let tests: Vec<_> = job.failed_tests().map(|test| Some(test.name.as_str())).collect();
        for test in if tests.is_empty() { vec![None] } else { tests } {
            let mut line = job.repeat(test);
            if let Some(seed) = numbers_after(&job.said, ": seed ").next() {
                line.push_str(&format!(" --seed {seed}"));
            }
            keep(&self.name, &format!("{line}\n{}", job.status), job.words_of(test))?;
            self.failures.push(line);
        }
        Ok(())
    }
}

/// A failure outlives the next round, which clears the logs.
fn keep(name: &str, line: &str, words: &str) -> Result<(), String> {
    let dir = target().join("explore-failures");
    let at = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis());
    let path = dir.join(format!("{}-{at}", name.replace(['/', ' '], "-")));
    let write = || fs::create_dir_all(&dir).and_then(|()| fs::write(&path, format!("{line}\n\n{words}\n")));
    write().map_err(|error| format!("{}: {error}", path.display()))?;
    println!("         kept in {}", path.display());
    Ok(())
}

/// The numbers that follow these words.
fn numbers_after(said: &str, words: &str) -> impl Iterator<Item = u64> {
    said.match_indices(words).filter_map(move |(at, _)| {
        let rest = &said[at + words.len()..];
        rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())].parse().ok()
    })
}

fn close(tallies: &[Tally]) -> Result<(), String> {
    println!("\nrandom tests                                                  seeds  failures");
    for tally in tallies {
        println!("  {:<56} {:>8} {:>9}", tally.name, tally.seeds, tally.failures.len());
    }
    let seeds: u64 = tallies.iter().map(|tally| tally.seeds).sum();
    let failures: Vec<_> = tallies.iter().flat_map(|tally| &tally.failures).collect();
    println!("\n{seeds} seeds, {} failures", failures.len());
    failures.iter().for_each(|line| println!("  {line}"));
    match failures.len() {
        0 => Ok(()),
        count => Err(format!("{count} failures; each is kept in target/explore-failures")),
    }
}

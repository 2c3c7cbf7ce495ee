//! What the test command says in the end.

use std::time::{Duration, Instant};

use crate::job::Finished;

const SLOWEST: usize = 20;

/// The command's steps, one after the other.
#[derive(Debug, Default)]
pub struct Steps(Vec<(String, Duration)>);

impl Steps {
    pub fn time<T>(&mut self, name: &str, step: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let begun = Instant::now();
        println!("== {name}");
        let result = step();
        self.0.push((name.to_owned(), begun.elapsed()));
        result
    }
}

/// Prints everything worth knowing about the run. An error when anything failed.
pub fn close(steps: &Steps, finished: &[Finished], left_out: &[String]) -> Result<(), String> {
    times(steps, finished);
    slowest(finished);
    println!("\nleft out:");
    let by_jobs = finished.iter().flat_map(|job| {
        job.left_out().into_iter().map(|reason| format!("{}: {reason}", job.name)).collect::<Vec<_>>()
    });
    let reasons: Vec<_> = left_out.iter().cloned().chain(by_jobs).collect();
    if reasons.is_empty() {
        println!("  nothing");
    }
    reasons.iter().for_each(|reason| println!("  {reason}"));
    failures(finished)
}

fn times(steps: &Steps, finished: &[Finished]) {
    println!("\nsteps                                    min:s");
    for (name, took) in &steps.0 {
        println!("  {name:<36} {:>7}", minutes(*took));
    }
    let all = steps.0.iter().map(|(_, took)| *took).sum();
    println!("  {:<36} {:>7}", "in all", minutes(all));
    println!("\njobs of the last step, side by side       min:s   tests");
    let mut jobs: Vec<_> = finished.iter().collect();
    jobs.sort_by_key(|job| std::cmp::Reverse(job.took));
    for job in jobs {
        let tests = if job.tests.is_empty() { String::new() } else { job.tests.len().to_string() };
        println!("  {:<37} {:>7} {tests:>7}", job.name, minutes(job.took));
    }
}

fn slowest(finished: &[Finished]) {
    let tests = finished.iter().flat_map(|job| job.tests.iter().map(move |test| (job, test)));
    let mut tests: Vec<_> = tests.collect();
    tests.sort_by(|(_, one), (_, other)| other.seconds.total_cmp(&one.seconds));
    println!("\nthe {} slowest tests                        s", SLOWEST.min(tests.len()));
    for (job, test) in tests.into_iter().take(SLOWEST) {
        println!("  {:>7.1}  {} {}", test.seconds, job.name, test.name);
    }
}

fn failures(finished: &[Finished]) -> Result<(), String> {
    let mut problems = Vec::new();
    for job in finished.iter().filter(|job| !job.passed) {
        let tests: Vec<_> = job.failed_tests().map(|test| Some(test.name.as_str())).collect();
        // One that ended before its tests did, or is no test program.
        let tests = if tests.is_empty() { vec![None] } else { tests };
        for test in tests {
            println!("\n==== FAILED: {} {}", job.name, test.unwrap_or(&job.status));
            println!("{}", job.words_of(test).trim_end());
            println!("---- repeat it alone:      {}", job.repeat(test));
            println!("---- output and servers' logs: {}", job.logs.display());
            problems.push(format!("{} {}", job.name, test.unwrap_or(&job.status)));
        }
    }
    let tests = || finished.iter().flat_map(|job| &job.tests);
    let wholes = || finished.iter().filter(|job| job.tests.is_empty());
    let passed = tests().filter(|test| test.passed).count() + wholes().filter(|job| job.passed).count();
    println!("\n{passed} passed, {} failed", problems.len());
    if problems.is_empty() { Ok(()) } else { Err(format!("failed:\n  {}", problems.join("\n  "))) }
}

fn minutes(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

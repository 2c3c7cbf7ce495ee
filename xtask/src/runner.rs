//! Runs jobs side by side: most of them wait for servers rather than compute.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::job::{Finished, Job, Kind, tests_in};

const POLL: Duration = Duration::from_millis(20);
const OUTPUT: &str = "output";

/// A job that takes longer hangs. Far more than the longest takes on a busy machine.
const JOB_TIME_MAX: Duration = Duration::from_secs(40 * 60);

struct Running {
    job: Job,
    child: Child,
    begun: Instant,
    logs: PathBuf,
}

/// Runs the jobs, the longest first, as many at a time as `threads` allows; one alone may exceed it. A failure
/// does not keep the others from running.
///
/// `logs` holds the output of those that fail and the logs of their servers.
pub fn run(mut jobs: Vec<Job>, threads: usize, logs: &Path) -> Result<Vec<Finished>, String> {
    let _ = fs::remove_dir_all(logs);
    jobs.sort_by_key(|job| std::cmp::Reverse(job.seconds));
    let (mut waiting, mut running) = (VecDeque::from(jobs), Vec::<Running>::new());
    let (mut finished, count) = (Vec::new(), waiting.len());
    while !waiting.is_empty() || !running.is_empty() {
        let taken: usize = running.iter().map(|running| running.job.threads).sum();
        let fits = |job: &Job| running.is_empty() || taken + job.threads <= threads;
        if let Some(job) = waiting.iter().position(fits).and_then(|next| waiting.remove(next)) {
            match start(job, logs) {
                Ok(started) => running.push(started),
                Err(unstarted) => {
                    finished.push(*unstarted);
                    tell(&finished, count);
                }
            }
            continue;
        }
        std::thread::sleep(POLL);
        let mut index = 0;
        while index < running.len() {
            match end(&mut running[index])? {
                None => index += 1,
                Some(status) => {
                    let Running { job, begun, logs, .. } = running.swap_remove(index);
                    finished.push(finish(job, begun, logs, status));
                    tell(&finished, count);
                }
            }
        }
    }
    Ok(finished)
}

/// The job's process, or why there is none.
fn start(mut job: Job, logs: &Path) -> Result<Running, Box<Finished>> {
    let (begun, logs) = (Instant::now(), logs.join(job.name.replace(['/', ' '], "-")));
    let mut spawn = || -> std::io::Result<Child> {
        fs::create_dir_all(&logs)?;
        let output = File::create(logs.join(OUTPUT))?;
        job.command.env("XTASK_LOGS", &logs).stdin(Stdio::null());
        job.command.stdout(output.try_clone()?).stderr(output).spawn()
    };
    match spawn() {
        Ok(child) => Ok(Running { job, child, begun, logs }),
        Err(error) => {
            let program = job.command.get_program().display().to_string();
            Err(Box::new(finish(job, begun, logs, (false, format!("{program} can't be started: {error}")))))
        }
    }
}

/// How the job ended, once it has.
fn end(running: &mut Running) -> Result<Option<(bool, String)>, String> {
    let failed = |error| format!("{}: {error}", running.job.name);
    if let Some(status) = running.child.try_wait().map_err(failed)? {
        return Ok(Some((status.success(), status.to_string())));
    }
    if running.begun.elapsed() < JOB_TIME_MAX {
        return Ok(None);
    }
    running.child.kill().map_err(failed)?;
    running.child.wait().map_err(failed)?;
    Ok(Some((false, format!("hangs: ended after {} minutes", JOB_TIME_MAX.as_secs() / 60))))
}

fn finish(job: Job, begun: Instant, logs: PathBuf, (passed, status): (bool, String)) -> Finished {
    let said = fs::read(logs.join(OUTPUT)).unwrap_or_default();
    let said = String::from_utf8_lossy(&said).into_owned();
    let tests = match job.kind {
        Kind::Tests { .. } => tests_in(&said),
        Kind::Whole { .. } => Vec::new(),
    };
    if passed {
        // Logs are for who looks into a failure.
        let _ = fs::remove_dir_all(&logs);
    }
    let (name, kind, variables) = (job.name, job.kind, job.variables);
    Finished { name, took: begun.elapsed(), passed, status, tests, said, logs, kind, variables }
}

fn tell(finished: &[Finished], count: usize) {
    let Some(last) = finished.last() else { return };
    let word = if last.passed { "ok    " } else { "FAILED" };
    let tests = if last.tests.is_empty() { String::new() } else { format!(", {} tests", last.tests.len()) };
    println!("[{}/{count}] {word} {} ({:.0} s{tests})", finished.len(), last.name, last.took.as_secs_f64());
    for test in last.failed_tests() {
        println!("         {}", test.name);
    }
}

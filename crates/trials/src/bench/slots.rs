use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tidegate_testkit::load::{self, Answer, Source, Stop};

use super::Scale;
use super::server::Server;
use crate::figure::Figure;

mod journal;

use journal::Journal;

const CONNECTIONS: usize = 50;
const BATCH: usize = 100;
const PER_WINDOW: usize = 100;
const WINDOW_MS: i64 = 4_000;
/// All events want the same instant.
const REQUESTED: &str = "2099-06-01T12:00:00Z";
const REQUESTED_MS: i64 = 4_083_998_400_000;

/// A burst of events for one instant, durable over HTTP, against the same requests on the same server without its
/// ledger. The client's journal tells whether every slot is where it belongs.
pub fn slots(dir: &Path, scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let durable = Server::durable(&dir.join("slots"))?;
    let noop = Server::noop()?;
    runtime.block_on(async {
        let config = format!("{{\"configName\":\"default\",\"maxPerWindow\":{PER_WINDOW},\"windowSize\":\"PT4S\"}}");
        for server in [&durable, &noop] {
            server.ready().await?;
            server.post("/admin/rate-limit/config", &config).await?;
        }
        let batches = scale.slot_events / BATCH;
        // Before and after, so that a machine that slows down or speeds up does so for both.
        let before = burst(&noop, batches / 2).await?;
        let run = burst(&durable, batches).await?;
        let after = burst(&noop, batches / 2).await?;
        let without = (before.events() + after.events()) / (before.took + after.took).as_secs_f64();
        let with = run.events() / run.took.as_secs_f64();
        println!(
            "POST /api/v1/slots/batch, {} events for one instant, batches of {BATCH}, {CONNECTIONS} connections: \
             durable {with:.0} events/s, no ledger {without:.0} events/s",
            scale.slot_events
        );
        let windows = Journal::read(&run.answers)?.check(scale.slot_events)?;
        println!("{windows} windows, the earliest full, none over its limit; none twice, none early");
        let (first, last) = run.tenths();
        println!("first tenth {first:.2?}, last tenth {last:.2?}");
        Ok(vec![
            Figure::ratio("slots_vs_no_ledger", with / without, 0.5),
            Figure::head_room("slots_last_vs_first_tenth", last.as_secs_f64(), 1.25 * first.as_secs_f64()),
        ])
    })
}

struct Run {
    took: Duration,
    answers: Vec<Vec<u8>>,
    /// When each batch was answered, in order.
    done: Vec<Instant>,
}

async fn burst(server: &Server, batches: usize) -> anyhow::Result<Run> {
    let next = Arc::new(AtomicUsize::new(0));
    let source = |_| Batches { next: next.clone(), batches, answers: Vec::new(), done: Vec::new() };
    let begun = Instant::now();
    let (report, sources) =
        load::run(server.address, (0..CONNECTIONS).map(source).collect(), &Stop::default()).await;
    let took = begun.elapsed();
    let ok = report.statuses.get(&200).copied().unwrap_or(0);
    anyhow::ensure!(ok == batches as u64 && report.unknown == 0, "not every batch was answered: {report}");
    let (mut answers, mut done) = (Vec::new(), Vec::new());
    for source in sources {
        answers.extend(source.answers);
        done.extend(source.done);
    }
    done.sort_unstable();
    Ok(Run { took, answers, done })
}

impl Run {
    #[expect(clippy::cast_precision_loss, reason = "a count for a rate")]
    fn events(&self) -> f64 {
        (self.answers.len() * BATCH) as f64
    }

    /// From the first answer on: opening the connections is nobody's slot.
    fn tenths(&self) -> (Duration, Duration) {
        let (last, tenth) = (self.done.len() - 1, (self.done.len() / 10).max(1));
        (self.done[tenth.min(last)] - self.done[0], self.done[last] - self.done[last.saturating_sub(tenth)])
    }
}

/// One connection's share of the batches: whoever is free takes the next, so that all are busy to the end.
struct Batches {
    next: Arc<AtomicUsize>,
    batches: usize,
    answers: Vec<Vec<u8>>,
    done: Vec<Instant>,
}

impl Source for Batches {
    fn next(&mut self, request: &mut Vec<u8>) -> bool {
        let batch = self.next.fetch_add(1, Ordering::Relaxed);
        if batch >= self.batches {
            return false;
        }
        let events: Vec<_> = (0..BATCH)
            .map(|n| format!("{{\"eventId\":\"event-{batch}-{n}\",\"requestedTime\":\"{REQUESTED}\"}}"))
            .collect();
        let body = format!("{{\"events\":[{}]}}", events.join(","));
        load::write_request(request, "POST", "/api/v1/slots/batch", &[], body.as_bytes());
        true
    }

    fn answered(&mut self, answer: Answer<'_>) {
        if let Answer::Response { status: 200, body } = answer {
            self.answers.push(body.to_vec());
            self.done.push(Instant::now());
        }
    }
}

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_testkit::load::{self, Answer, Report, Source, Stop};

use super::Scale;
use super::send::middle;
use super::server::Server;
use crate::figure::Figure;

const CONNECTIONS: usize = 64;
const ROUNDS: usize = 5;
/// So that there is something to pop on each connection, on a slow machine in a short run too.
const PUSHES_MIN: usize = 2 * CONNECTIONS;
const PUSHED_WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// Durable pushes and pops against the same requests on the same server without its ledger.
pub fn pull(dir: &Path, scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let durable = Server::durable(&dir.join("pull"))?;
    let noop = Server::noop()?;
    runtime.block_on(async {
        let mut reports = [const { Vec::new() }; 4];
        for server in [&durable, &noop] {
            server.ready().await?;
        }
        for _ in 0..ROUNDS {
            for (place, server) in [&durable, &noop].into_iter().enumerate() {
                let pushed = push(server.address, scale).await?;
                // Fewer than there are, so that no pop finds the queue empty.
                let pops = usize::try_from(pushed.responses())? / CONNECTIONS * 9 / 10;
                reports[2 + place].push(pop(server.address, pops).await?);
                reports[place].push(pushed);
            }
        }
        let [push, push_noop, pop, pop_noop] = reports.map(middle);
        let (push, push_noop, pop, pop_noop) = (push?, push_noop?, pop?, pop_noop?);
        println!("POST /queue/push, {CONNECTIONS} connections: durable {push}");
        println!("POST /queue/push, {CONNECTIONS} connections: no ledger {push_noop}");
        println!("GET /queue/pop, {CONNECTIONS} connections: durable {pop}");
        println!("GET /queue/pop, {CONNECTIONS} connections: no ledger {pop_noop}");
        Ok(vec![
            Figure::ratio("push_vs_no_ledger", push.per_second() / push_noop.per_second(), 0.5),
            Figure::ratio("pop_vs_no_ledger", pop.per_second() / pop_noop.per_second(), 0.5),
        ])
    })
}

async fn push(server: SocketAddr, scale: Scale) -> anyhow::Result<Report> {
    let mut request = Vec::new();
    let body = "x".repeat(200);
    load::write_request(&mut request, "POST", "/queue/push", &[("consumerGroup", "bench")], body.as_bytes());
    let (stop, answers) = (Stop::default(), Arc::new(AtomicUsize::new(0)));
    let source = Pushes { request, answers: answers.clone() };
    let timer = stop.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs_f64(scale.send_seconds)).await;
        let enough = async {
            while answers.load(Ordering::Relaxed) < PUSHES_MIN {
                tokio::time::sleep(POLL).await;
            }
        };
        let _ = tokio::time::timeout(PUSHED_WITHIN, enough).await;
        timer.now();
    });
    let (report, _) = load::run(server, vec![source; CONNECTIONS], &stop).await;
    all_passed(report)
}

/// So many on each connection.
async fn pop(server: SocketAddr, pops: usize) -> anyhow::Result<Report> {
    let mut request = Vec::new();
    load::write_request(&mut request, "GET", "/queue/pop", &[("consumerGroup", "bench")], b"");
    let sources = (0..CONNECTIONS).map(|_| Times { request: request.clone(), left: pops }).collect();
    let (report, _) = load::run(server, sources, &Stop::default()).await;
    all_passed(report)
}

fn all_passed(report: Report) -> anyhow::Result<Report> {
    let passed = report.statuses.get(&200).copied().unwrap_or(0);
    anyhow::ensure!(
        passed > 0 && passed == report.responses() && report.unknown == 0,
        "not all passed: {report}"
    );
    Ok(report)
}

/// The same again and again, and how many were answered on all connections.
#[derive(Clone)]
struct Pushes {
    request: Vec<u8>,
    answers: Arc<AtomicUsize>,
}

impl Source for Pushes {
    fn next(&mut self, request: &mut Vec<u8>) -> bool {
        request.extend_from_slice(&self.request);
        true
    }

    fn answered(&mut self, _: Answer<'_>) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }
}

struct Times {
    request: Vec<u8>,
    left: usize,
}

impl Source for Times {
    fn next(&mut self, request: &mut Vec<u8>) -> bool {
        request.extend_from_slice(&self.request);
        let more = self.left > 0;
        self.left = self.left.saturating_sub(1);
        more
    }

    fn answered(&mut self, _: Answer<'_>) {}
}

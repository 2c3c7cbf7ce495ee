use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use tidegate_testkit::load::{self, Answer, Report, Source, Stop};

use super::server::Server;
use super::{Scale, median};
use crate::figure::Figure;

pub(super) const CONNECTIONS: usize = 64;
const USERS_PER_CONNECTION: usize = 16;
const ROUNDS: usize = 5;
/// A server that answers nothing for so long is taken for a failure.
const SECONDS_MAX: f64 = 20.0;

/// Durable sends against the same requests on the same server without its ledger. The sender delivers all the
/// while, as it would.
pub fn send(dir: &Path, scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let durable = Server::durable(&dir.join("send"))?;
    let noop = Server::noop()?;
    runtime.block_on(async {
        for server in [&durable, &noop] {
            server.ready().await?;
            configure(server).await?;
        }
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            without.push(measure(noop.address, scale, 200).await?);
            with.push(measure(durable.address, scale, 200).await?);
        }
        let (with, without) = (middle(with)?, middle(without)?);
        println!("POST /api/send, {CONNECTIONS} connections: durable {with}");
        println!("POST /api/send, {CONNECTIONS} connections: no ledger {without}");
        Ok(vec![Figure::ratio("send_vs_no_ledger", with.per_second() / without.per_second(), 0.5)])
    })
}

/// All answers have to be of the one status, but for the first of a bucket with a single token.
pub(super) async fn measure(server: SocketAddr, scale: Scale, status: u16) -> anyhow::Result<Report> {
    let mut seconds = scale.send_seconds;
    let (report, expected) = loop {
        let report = run_for(server, (0..CONNECTIONS).map(Sends::new).collect(), seconds).await;
        let expected = report.statuses.get(&status).copied().unwrap_or(0);
        // On a busy machine the short time of a smoke run may end before the first answer.
        if expected > 0 || report.unknown > 0 || seconds > SECONDS_MAX {
            break (report, expected);
        }
        seconds *= 2.0;
    };
    anyhow::ensure!(
        expected > 0 && expected + u64::from(status != 200) >= report.responses() && report.unknown == 0,
        "not every answer was {status}: {report}"
    );
    Ok(report)
}

pub(super) async fn run_for(server: SocketAddr, sources: Vec<Sends>, seconds: f64) -> Report {
    let stop = Stop::default();
    let timer = stop.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
        timer.now();
    });
    load::run(server, sources, &stop).await.0
}

pub(super) fn middle(reports: Vec<Report>) -> anyhow::Result<Report> {
    let rate = median(reports.iter().map(Report::per_second).collect());
    reports
        .into_iter()
        .find(|report| report.per_second() >= rate && report.per_second() <= rate)
        .context("no reports")
}

pub(super) async fn configure(server: &Server) -> anyhow::Result<()> {
    for connection in 0..CONNECTIONS {
        for user in 0..USERS_PER_CONNECTION {
            let user = user_name(connection, user);
            let body = format!("{{\"userId\":\"{user}\",\"rateLimit\":1000000000,\"timeWindow\":60}}");
            server.post("/api/config", &body).await?;
        }
    }
    Ok(())
}

fn user_name(connection: usize, user: usize) -> String {
    format!("user-{connection}-{user}")
}

/// Users of its own, one after the other.
pub(super) struct Sends {
    requests: Vec<Vec<u8>>,
    next: usize,
}

impl Sends {
    pub(super) fn new(connection: usize) -> Self {
        let message = "x".repeat(200);
        let request = |user| {
            let body =
                format!("{{\"userId\":\"{}\",\"message\":\"{message}\"}}", user_name(connection, user));
            let mut request = Vec::new();
            load::write_request(&mut request, "POST", "/api/send", &[], body.as_bytes());
            request
        };
        Self { requests: (0..USERS_PER_CONNECTION).map(request).collect(), next: 0 }
    }
}

impl Source for Sends {
    fn next(&mut self, request: &mut Vec<u8>) -> bool {
        request.extend_from_slice(&self.requests[self.next]);
        self.next = (self.next + 1) % self.requests.len();
        true
    }

    fn answered(&mut self, _: Answer<'_>) {}
}

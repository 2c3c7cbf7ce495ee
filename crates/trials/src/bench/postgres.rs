use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tidegate_testkit::load::Report;
use tidegate_testkit::services::{Postgres, PostgresOptions};

use super::send::{CONNECTIONS, Sends, configure, middle, run_for};
use super::server::Server;
use super::{Scale, median, median_ratio};
use crate::figure::Figure;

const ROUNDS: usize = 5;
/// As many as the sends have connections.
const CLIENTS: usize = CONNECTIONS;
const DELIVERED_WITHIN: Duration = Duration::from_secs(60);

/// One row in one statement and one transaction: the very row that a send leaves in `message`, with the same key.
const YARDSTICK: &str = "CREATE SEQUENCE yardstick_seq; \
     CREATE TABLE yardstick (LIKE tidegate.message INCLUDING ALL)";
const INSERT: &str = "INSERT INTO yardstick (seq, admitted_at, queue, recipient, chained, lane, user_id, expires_at, \
     headers, ack_required, body, checksum) VALUES (nextval('yardstick_seq'), \
     floor(extract(epoch FROM clock_timestamp()) * 1000), 'sms', 'user-1-1', true, 1, 'user-1-1', NULL, NULL, false, \
     convert_to(repeat('x', 200), 'UTF8'), 12345678);\n";

/// A pgbench that completes nothing within this has something wrong with it.
const PGBENCH_SECONDS_MAX: f64 = 60.0;

/// Durable sends on a PostgreSQL with default settings against `pgbench`, which inserts the same row with one statement
/// per transaction; the whole way of a message against the sends; and two gateways against one.
pub(super) fn postgres(dir: &Path, scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let server = Postgres::start(PostgresOptions { durable: true, settings: Vec::new() })?;
    let database = server.new_name();
    server.sql("postgres", &format!("CREATE DATABASE {database}"))?;
    let config = |name: &str, role: &str| {
        let path = dir.join(name);
        let url = server.url(&database);
        let text =
            format!("server.role = \"{role}\"\n[ledger]\nkind = \"postgres\"\n[postgres]\nurl = \"{url}\"\n");
        std::fs::write(&path, text).map(|()| path)
    };
    let taking = config("taking.toml", "gateway")?;
    let sending = config("sending.toml", "sender")?;
    let script = dir.join("insert.sql");
    std::fs::write(&script, INSERT)?;
    let bench = Bench { server: &server, database: &database, script, scale };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let figures = runtime.block_on(bench.run(&taking, &sending, dir))?;
    let deadlocks = server.log()?.lines().filter(|line| line.contains("deadlock detected")).count();
    Ok(figures.into_iter().chain([Figure::none_of("postgres_deadlocks", deadlocks, "deadlocks")]).collect())
}

struct Bench<'a> {
    server: &'a Postgres,
    database: &'a str,
    script: PathBuf,
    scale: Scale,
}

impl Bench<'_> {
    async fn run(&self, taking: &Path, sending: &Path, dir: &Path) -> anyhow::Result<Vec<Figure>> {
        let data = dir.join("unused");
        let (one, other) = (Server::durable_with(&data, taking)?, Server::durable_with(&data, taking)?);
        one.ready().await?;
        other.ready().await?;
        configure(&one).await?;
        self.server.sql(self.database, YARDSTICK)?;
        let (mut theirs, mut ours, mut both) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            theirs.push(self.pgbench()?);
            ours.push(self.sends(&[one.address]).await?);
            both.push(self.sends(&[one.address, other.address]).await?);
        }
        let rates = |reports: &[Report]| reports.iter().map(Report::per_second).collect::<Vec<_>>();
        let (sends, together) = (rates(&ours), rates(&both));
        println!("one row per transaction, pgbench, {CLIENTS} clients: {:.0} /s", median(theirs.clone()));
        println!("POST /api/send on PostgreSQL, {CONNECTIONS} connections: {}", middle(ours)?);
        println!("the same over two gateways: {}", middle(both)?);
        let cycles = self.cycles(&one, sending, &data).await?;
        println!("sent, claimed and settled, log channel: {:.0} /s", median(cycles.clone()));
        Ok(vec![
            Figure::ratio("postgres_send_vs_pgbench", median_ratio(&sends, &theirs), 2.0),
            Figure::ratio("postgres_cycle_vs_send", median(cycles) / median(sends.clone()), 0.5),
            Figure::ratio("postgres_two_gateways_vs_one", median_ratio(&together, &sends), 0.9),
        ])
    }

    /// The connections are spread evenly over the gateways.
    async fn sends(&self, gateways: &[SocketAddr]) -> anyhow::Result<Report> {
        let spread = |place: usize| (0..CONNECTIONS).filter(move |number| number % gateways.len() == place);
        let mut loads = tokio::task::JoinSet::new();
        for (place, gateway) in gateways.iter().enumerate() {
            let (gateway, sources) = (*gateway, spread(place).map(Sends::new).collect());
            loads.spawn(run_for(gateway, sources, self.scale.send_seconds));
        }
        let mut total: Option<Report> = None;
        while let Some(report) = loads.join_next().await {
            let report = report?;
            match &mut total {
                Some(total) => total.merge(report),
                None => total = Some(report),
            }
        }
        let total = total.context("no gateways")?;
        ensure!(total.statuses.keys().all(|status| *status == 200) && total.unknown == 0, "{total}");
        Ok(total)
    }

    /// How fast messages are sent and delivered when both go on at once: until the last one is settled.
    async fn cycles(&self, gateway: &Server, sending: &Path, data: &Path) -> anyhow::Result<Vec<f64>> {
        let sender = Server::durable_with(data, sending)?;
        sender.ready().await?;
        let mut rates = Vec::new();
        gateway.all_delivered(DELIVERED_WITHIN).await?;
        for _ in 0..self.scale.rounds.min(ROUNDS) {
            let begun = Instant::now();
            let report = self.sends(&[gateway.address]).await?;
            gateway.all_delivered(DELIVERED_WITHIN).await?;
            rates.push(count(report.responses()) / begun.elapsed().as_secs_f64());
        }
        Ok(rates)
    }

    /// Transactions per second. A smoke run is so short that on a busy machine none may end in time: then for longer.
    fn pgbench(&self) -> anyhow::Result<f64> {
        let mut seconds = self.scale.send_seconds.ceil();
        loop {
            let said = self.pgbench_for(seconds)?;
            let rate = |line: &str| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok();
            match said.lines().find_map(rate) {
                Some(rate) => return Ok(rate),
                None => ensure!(seconds < PGBENCH_SECONDS_MAX, "pgbench said {said:?}"),
            }
            seconds *= 2.0;
        }
    }

    fn pgbench_for(&self, seconds: f64) -> anyhow::Result<String> {
        let address = self.server.address;
        let mut command = Command::new(self.server.program("pgbench"));
        command.args(["-n", "-M", "prepared", "-U", "postgres", "-h", &address.ip().to_string()]);
        command.args(["-p", &address.port().to_string(), "-c", &CLIENTS.to_string(), "-j", "1"]);
        command.args(["-T", &seconds.to_string(), "-f"]).arg(&self.script).arg(self.database);
        let output = command.output().context("pgbench")?;
        ensure!(output.status.success(), "pgbench: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count for people")]
fn count(number: u64) -> f64 {
    number as f64
}

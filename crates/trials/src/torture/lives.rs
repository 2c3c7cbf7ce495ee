use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tempfile::TempDir;
use tidegate_testkit::journal::{ClientJournal, ProviderJournal, read_log_channel};
use tidegate_testkit::judge::{Verdict, judge};
use tidegate_testkit::load::{self, Report, Source, Stop};
use tidegate_testkit::{Disk, Gateway, Launch};
use tokio::task::JoinHandle;

use super::chance::Chance;
use super::look_ups::LookUps;
use super::toll::Toll;
use super::traffic::{Client, clients};

const READY_WITHIN: Duration = Duration::from_secs(60);
const DRAINED_WITHIN: Duration = Duration::from_secs(300);
const DISK_BYTES: u64 = 4 << 30;
/// In minutes: longer than any run, so that a limit holds over all of it.
const WINDOW_MINUTES: u32 = 10_080;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Kill,
    PowerCut,
}

/// The lives of one gateway on one data directory.
#[derive(Debug)]
pub struct Lives {
    launch: Launch,
    chance: Chance,
    clients: Vec<Client>,
    look_ups: Vec<LookUps>,
    provider: ProviderJournal,
    toll: Toll,
    disk: Option<Disk>,
    /// Deliveries and logs, outside the disk whose power is cut.
    files: PathBuf,
    _temporary: Option<TempDir>,
}

impl Lives {
    pub fn new(
        binary: &Path,
        end: End,
        sync: &str,
        seed: u64,
        keep: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        let temporary = tempfile::Builder::new().prefix("tidegate-torture-").tempdir()?;
        let (files, temporary) = match keep {
            Some(files) => (files.join(end.to_string()), None),
            None => (temporary.path().to_owned(), Some(temporary)),
        };
        fs::create_dir_all(&files)?;
        let disk = (end == End::PowerCut).then(|| Disk::new(DISK_BYTES)).transpose()?;
        let launch = Launch {
            binary: binary.to_owned(),
            data: disk.as_ref().map_or(files.clone(), Disk::path).join("data"),
            stdout: files.join("deliveries"),
            stderr: files.join("gateway.log"),
            env: vec![("TIDEGATE_LEDGER__SYNC".into(), sync.into()), at_full_speed()],
            ready_within: READY_WITHIN,
        };
        let mut chance = Chance::new(seed);
        let clients = clients(&mut chance);
        let look_ups = vec![LookUps::default()];
        let (provider, toll) = (ProviderJournal::default(), Toll::default());
        Ok(Self { launch, chance, clients, look_ups, provider, toll, disk, files, _temporary: temporary })
    }

    pub fn toll(&self) -> &Toll {
        &self.toll
    }

    /// Gives every user their quota, once: configuring again would reset the count.
    pub async fn configure(&mut self) -> anyhow::Result<()> {
        let gateway = self.start().await?;
        for (user, limit) in self.limits() {
            let json = format!(r#"{{"userId":"{user}","rateLimit":{limit},"timeWindow":{WINDOW_MINUTES}}}"#);
            let (status, body) = load::post(gateway.address, "/api/config", json.as_bytes()).await?;
            ensure!(status == 200, "/api/config answers {status}: {}", String::from_utf8_lossy(&body));
        }
        self.end_well(gateway).await
    }

    /// One life under load that ends badly, sometimes after one that ended before it was ready.
    pub async fn live(&mut self) -> anyhow::Result<()> {
        if self.chance.one_in(8) {
            self.die_in_recovery().await?;
        }
        // A sender that keeps up leaves nothing waiting that a crash could lose; one that lags leaves a lot.
        self.launch.env[1] = if self.chance.one_in(2) { at_full_speed() } else { lagging() };
        let gateway = self.start().await?;
        let stop = Stop::default();
        for client in &mut self.clients {
            client.begin_life();
        }
        let load = load_beside(&gateway, std::mem::take(&mut self.clients), &stop);
        let look_ups = load_beside(&gateway, std::mem::take(&mut self.look_ups), &stop);
        tokio::time::sleep(Duration::from_millis(self.chance.between(10, 500))).await;
        self.die(gateway)?;
        stop.now();
        let (report, clients) = load.await?;
        self.clients = clients;
        self.toll.report.merge(report);
        (_, self.look_ups) = look_ups.await?;
        self.check_answers()
    }

    /// Answers every open question, waits until everything is delivered, and reads the books.
    pub async fn last_life(&mut self) -> anyhow::Result<()> {
        self.launch.env[1] = at_full_speed();
        let gateway = self.start().await?;
        for client in &mut self.clients {
            client.only_unanswered = true;
        }
        let (_, clients) =
            load::run(gateway.address, std::mem::take(&mut self.clients), &Stop::default()).await;
        self.clients = clients;
        self.check_answers()?;
        let unanswered: usize = self.clients.iter().map(Client::unanswered).sum();
        ensure!(unanswered == 0, "{unanswered} messages without an answer in a sound life");
        let begun = Instant::now();
        while gateway.metric("tidegate_messages_pending").await? != Some(0.0) {
            let pending = gateway.metric("tidegate_messages_pending").await?;
            ensure!(begun.elapsed() < DRAINED_WITHIN, "{pending:?} messages still pending: stuck");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.check_books(&gateway).await?;
        self.end_well(gateway).await
    }

    pub fn judge(&self) -> Verdict {
        let tries = self.clients.iter().flat_map(|client| client.journal.tries.iter().cloned()).collect();
        judge(&ClientJournal { tries }, &self.provider, &self.limits())
    }

    fn limits(&self) -> BTreeMap<String, u32> {
        self.clients.iter().flat_map(Client::limits).collect()
    }

    async fn start(&mut self) -> anyhow::Result<Gateway> {
        let gateway = self.launch.start().await?;
        self.toll.ready_after_max = self.toll.ready_after_max.max(gateway.ready_after);
        Ok(gateway)
    }

    async fn die_in_recovery(&mut self) -> anyhow::Result<()> {
        let gateway = self.launch.spawn()?;
        tokio::time::sleep(Duration::from_millis(self.chance.between(0, 40))).await;
        self.toll.ends_in_recovery += 1;
        self.die(gateway)
    }

    /// Even without fsync, what was there is on disk afterwards.
    async fn end_well(&mut self, gateway: Gateway) -> anyhow::Result<()> {
        gateway.terminate()?;
        let status = gateway.ended(READY_WITHIN).await?;
        ensure!(status.success(), "the gateway ended with {status} after SIGTERM");
        if let Some(disk) = &mut self.disk {
            disk.restore()?;
        }
        self.read_deliveries()
    }

    /// A power cut takes process and disk in one moment: struck first, the process can't tell anybody what it
    /// hears from a disk without power.
    fn die(&mut self, gateway: Gateway) -> anyhow::Result<()> {
        if let Some(disk) = &mut self.disk {
            gateway.strike()?;
            disk.cut()?;
            gateway.kill()?;
            disk.restore()?;
        } else {
            gateway.kill()?;
        }
        self.toll.ends += 1;
        self.read_deliveries()
    }

    /// Each life's output is read and removed after it: a line cut off by death must not run into the next life.
    fn read_deliveries(&mut self) -> anyhow::Result<()> {
        let stdout = fs::read(&self.launch.stdout)?;
        let count = read_log_channel(&stdout, &mut self.provider)?;
        let handed = &self.provider.deliveries[self.provider.deliveries.len() - count..];
        let distinct: HashSet<_> = handed.iter().map(|handed| handed.id).collect();
        self.toll.repeated += count - distinct.len();
        fs::rename(&self.launch.stdout, self.files.join("deliveries.last"))
            .context("cannot put the life's deliveries aside")
    }

    async fn check_books(&mut self, gateway: &Gateway) -> anyhow::Result<()> {
        let mut sum = 0.0;
        for part in ["delivered_total", "dead_total", "expired_total", "deleted_total", "pending"] {
            let name = format!("tidegate_messages_{part}");
            sum += gateway.metric(&name).await?.with_context(|| format!("no metric {name}"))?;
        }
        let admitted =
            gateway.metric("tidegate_messages_admitted_total").await?.context("no admitted total")?;
        let acknowledged = self.judge().acknowledged as f64;
        if admitted.total_cmp(&sum).is_ne() || admitted.total_cmp(&acknowledged).is_ne() {
            self.toll.unbalanced += 1;
            println!(
                "the books say {admitted} admitted, {sum} accounted for; clients know of {acknowledged}"
            );
        }
        Ok(())
    }

    fn check_answers(&self) -> anyhow::Result<()> {
        let sent = self.clients.iter().flat_map(|client| &client.strange);
        let strange = self.look_ups.iter().flat_map(|look_ups| &look_ups.strange).chain(sent).next();
        ensure!(strange.is_none(), "a sound gateway does not answer that: {strange:?}");
        Ok(())
    }
}

fn load_beside<S: Source + Send + 'static>(
    gateway: &Gateway,
    sources: Vec<S>,
    stop: &Stop,
) -> JoinHandle<(Report, Vec<S>)> {
    let (address, stop) = (gateway.address, stop.clone());
    tokio::spawn(async move { load::run(address, sources, &stop).await })
}

fn at_full_speed() -> (String, String) {
    ("TIDEGATE_SENDER__CONCURRENCY".into(), "4096".into())
}

fn lagging() -> (String, String) {
    ("TIDEGATE_SENDER__CONCURRENCY".into(), "1".into())
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kill => "kill",
            Self::PowerCut => "power cut",
        })
    }
}

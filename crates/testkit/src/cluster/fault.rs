use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::json;
use tokio::task::JoinSet;

use super::ask::{PATIENCE, ask};
use super::{Broker, Cluster, IN_FLIGHT_MAX, READY_WITHIN};

/// How long what was killed stays away.
const AWAY: Duration = Duration::from_millis(1_200);
/// How much longer than a lease a stall lasts.
const PAST_THE_LEASE: Duration = Duration::from_millis(800);
const STILL_THERE_MAX: Duration = Duration::from_secs(5);

/// What can happen to a cluster. Gateways and senders by their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    KillGateway(usize),
    /// SIGSTOP, for longer than a lease.
    StopGateway(usize),
    KillSender(usize),
    StopSender(usize),
    KillDatabase,
    /// Every connection breaks, again and again.
    CutDatabase,
    /// Nothing moves on any connection, for longer than a lease.
    StallDatabase,
    KillRedis,
    FlushRedis,
    StallRedis,
    KillBus,
    /// SIGSTOP, for longer than a record may be on its way.
    StopBus,
    /// It is low on memory, and takes nothing.
    FillBus,
    /// What is on it is gone, and where it was too.
    LoseBus,
    /// Everything that was ever on it comes again.
    ReplayBus,
}

impl Fault {
    /// Deliveries that may have to be repeated because of it: those in flight.
    pub fn repeats_max(self, senders: usize) -> usize {
        match self {
            Self::KillSender(_) | Self::StopSender(_) => IN_FLIGHT_MAX,
            Self::KillDatabase | Self::CutDatabase | Self::StallDatabase => senders * IN_FLIGHT_MAX,
            Self::KillGateway(_) | Self::StopGateway(_) => 0,
            Self::KillRedis | Self::FlushRedis | Self::StallRedis => 0,
            Self::KillBus | Self::StopBus | Self::FillBus | Self::LoseBus => 0,
            // The senders are killed for it.
            Self::ReplayBus => senders * IN_FLIGHT_MAX,
        }
    }
}

impl Cluster {
    /// Lets it happen, puts an end to it, and waits until all nodes are ready again; how long that took.
    pub async fn suffer(&mut self, fault: Fault) -> anyhow::Result<Duration> {
        let stalled = self.lease + PAST_THE_LEASE;
        match fault {
            Fault::KillGateway(n) => {
                self.gateways[n].kill()?;
                tokio::time::sleep(AWAY).await;
                self.gateways[n].restart()?;
            }
            Fault::KillSender(n) => {
                self.senders[n].kill()?;
                tokio::time::sleep(AWAY).await;
                self.senders[n].restart()?;
            }
            Fault::StopGateway(n) => {
                self.gateways[n].stop()?;
                tokio::time::sleep(stalled).await;
                self.gateways[n].resume()?;
            }
            Fault::StopSender(n) => {
                self.senders[n].stop()?;
                tokio::time::sleep(stalled).await;
                self.senders[n].resume()?;
            }
            Fault::KillDatabase => {
                self.postgres.kill()?;
                self.turned_away().await?;
                tokio::time::sleep(AWAY).await;
                tokio::task::block_in_place(|| self.postgres.restart())?;
            }
            Fault::CutDatabase => self.cut_database().await,
            Fault::StallDatabase => {
                self.to_postgres.stall();
                self.turned_away().await?;
                tokio::time::sleep(stalled).await;
                self.to_postgres.heal();
            }
            Fault::KillRedis => {
                self.redis.kill()?;
                tokio::time::sleep(AWAY).await;
                tokio::task::block_in_place(|| self.redis.restart())?;
            }
            Fault::FlushRedis => {
                let address = self.redis.address;
                let flushed = tokio::task::block_in_place(|| self.redis.ask(&["FLUSHALL"]))?;
                ensure!(flushed.starts_with("+OK"), "{address}: {flushed}");
            }
            Fault::StallRedis => {
                self.to_redis.stall();
                tokio::time::sleep(AWAY).await;
                self.to_redis.heal();
            }
            Fault::KillBus => {
                tokio::time::sleep(self.broker()?.settles_within()).await;
                self.broker()?.kill()?;
                tokio::time::sleep(AWAY).await;
                tokio::task::block_in_place(|| self.broker()?.restart())?;
            }
            Fault::StopBus => {
                self.broker()?.stop()?;
                tokio::time::sleep(stalled).await;
                self.broker()?.resume()?;
            }
            Fault::FillBus => {
                tokio::task::block_in_place(|| self.broker()?.set_full(true))?;
                tokio::time::sleep(stalled).await;
                tokio::task::block_in_place(|| self.broker()?.set_full(false))?;
            }
            Fault::LoseBus => tokio::task::block_in_place(|| self.broker()?.lose("sms-outbound"))?,
            Fault::ReplayBus => {
                self.replays += 1;
                let number = self.replays;
                let settings = self.broker()?.settings(number);
                for sender in &mut self.senders {
                    sender.kill()?;
                    sender.restart_with(settings.clone())?;
                }
            }
        }
        self.ready_within(READY_WITHIN).await
    }

    fn broker(&mut self) -> anyhow::Result<&mut Broker> {
        self.broker.as_mut().context("there is no bus")
    }

    async fn cut_database(&self) {
        for _ in 0..8 {
            self.to_postgres.cut();
            tokio::time::sleep(AWAY / 12).await;
            self.to_postgres.heal();
            tokio::time::sleep(AWAY / 12).await;
        }
    }

    /// What every gateway says while its database is away: come back later.
    async fn turned_away(&self) -> anyhow::Result<()> {
        let gateways = self.gateways.iter().map(|gateway| gateway.address);
        let mut asking: JoinSet<_> = gateways.map(told_to_come_back).collect();
        while let Some(told) = asking.join_next().await {
            told??;
        }
        Ok(())
    }
}

/// The server's orphans may answer a little longer than it lives.
async fn told_to_come_back(gateway: SocketAddr) -> anyhow::Result<()> {
    let order = json!({"userId": "nobody", "message": "meanwhile"}).to_string();
    let begun = Instant::now();
    loop {
        let reply = ask(gateway, "POST", "/api/send", &[], order.as_bytes(), PATIENCE).await;
        let reply = reply.context("a gateway without its database does not answer")?;
        if reply.status == 503 && reply.retry_after {
            return Ok(());
        }
        let still_there = reply.status == 404 && begun.elapsed() < STILL_THERE_MAX;
        ensure!(still_there, "a gateway without its database answers {reply:?}");
    }
}

//! The same gateway in front of a ledger that answers at once and keeps nothing: what HTTP alone costs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tidegate::config::{ChannelKind, Loaded, Sources};
use tidegate::server::Channels;
use tidegate_adapters::SystemClock;
use tidegate_adapters::channels::log::LogChannel;
use tidegate_domain::limits::slot::SlotRule;
use tidegate_domain::limits::{Quota, QuotaRule};
use tidegate_domain::{
    Admission, Admitted, Advanced, Claim, ClaimRequest, Clock, Counts, Durability, EventId, Forecast, Health,
    Ledger, LedgerError, MessageId, MessageRecord, Released, Reservation, Reserved, Settled, Settlement,
    Slot, SlotConfig, SlotConfigName, SlotConfigPut, Slots, Timestamp, UserId,
};

mod queues;
mod transit;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    config: Option<PathBuf>,
}

pub async fn serve(args: &Args) -> anyhow::Result<()> {
    let file = args
        .config
        .as_ref()
        .map(|path| Ok::<_, std::io::Error>((path.clone(), std::fs::read_to_string(path)?)));
    let flags = vec![("--listen", "server.listen", args.listen.to_string())];
    let sources = Sources { file: file.transpose()?, flags, ..Sources::default() };
    let settings = Loaded::from_sources(&sources).map_err(|problems| anyhow::anyhow!("{problems}"))?.settings;
    let listener = tokio::net::TcpListener::bind(args.listen).await?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let ledger = Arc::new(NoLedger { clock: clock.clone(), next: AtomicU64::new(1) });
    let mut channels = Channels::new();
    channels.insert(ChannelKind::Log, Arc::new(LogChannel::stdout()?));
    let nothing_to_reload = Box::new(|| Ok(Vec::new()));
    let policies = tidegate::wiring::policies(&settings, clock.clone(), nothing_to_reload).await?;
    tidegate::server::run(settings, listener, ledger, channels, clock, policies, std::future::pending()).await
}

#[derive(Debug)]
struct NoLedger {
    clock: Arc<dyn Clock>,
    next: AtomicU64,
}

#[async_trait]
impl Ledger for NoLedger {
    async fn admit(&self, batch: Vec<Admission>) -> Result<Vec<Admitted>, LedgerError> {
        let at = self.clock.now();
        let admit = |admission: Admission| {
            let id = MessageId::new(at, self.next.fetch_add(1, Ordering::Relaxed), 1);
            let quota = admission.charge.map(|_| Quota::new(1_000_000_000, 60_000, at));
            Admitted::Admitted { id, at, quota }
        };
        Ok(batch.into_iter().map(admit).collect())
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claim>, LedgerError> {
        tokio::time::sleep(Duration::from_millis(request.wait_ms)).await;
        Ok(Vec::new())
    }

    async fn settle(&self, batch: Vec<Settlement>) -> Result<Vec<Settled>, LedgerError> {
        Ok(batch.iter().map(|_| Settled::LostLease).collect())
    }

    async fn advance(&self, batch: Vec<Settlement>, _: u64) -> Result<Vec<Advanced>, LedgerError> {
        Ok(batch.iter().map(|_| Advanced { settled: Settled::LostLease, next: None }).collect())
    }

    async fn set_quota(&self, _: UserId, rule: QuotaRule) -> Result<Quota, LedgerError> {
        Ok(Quota::new(rule.limit, rule.window_ms, self.clock.now()))
    }

    async fn quota(&self, _: UserId) -> Result<Option<Quota>, LedgerError> {
        Ok(None)
    }

    async fn delete_quota(&self, _: UserId) -> Result<bool, LedgerError> {
        Ok(false)
    }

    async fn quotas(&self, _: Option<UserId>, _: usize) -> Result<Vec<(UserId, Quota)>, LedgerError> {
        Ok(Vec::new())
    }

    async fn message(&self, _: MessageId) -> Result<Option<MessageRecord>, LedgerError> {
        Ok(None)
    }

    async fn counts(&self) -> Result<Counts, LedgerError> {
        Ok(Counts::default())
    }

    async fn sweep(&self) -> Result<(), LedgerError> {
        Ok(())
    }

    fn durability(&self) -> Durability {
        Durability::Fsync
    }

    fn health(&self) -> Health {
        Health::Ready
    }

    async fn failed(&self) -> String {
        std::future::pending().await
    }
}

#[async_trait]
impl Slots for NoLedger {
    async fn put_slot_config(
        &self,
        name: SlotConfigName,
        rule: SlotRule,
    ) -> Result<SlotConfigPut, LedgerError> {
        let created_at = self.clock.now();
        Ok(SlotConfigPut::Stored(SlotConfig { name, version: 1, rule, created_at }))
    }

    async fn slot_config(&self, _: SlotConfigName) -> Result<Vec<SlotConfig>, LedgerError> {
        Ok(Vec::new())
    }

    /// Whenever asked for: nothing is counted and nothing is kept.
    async fn reserve(&self, batch: Vec<Reservation>) -> Result<Vec<Reserved>, LedgerError> {
        let created_at = self.clock.now();
        let assign = |Reservation { event, config, requested, .. }| {
            let (scheduled, window_start) = (requested, requested);
            let slot = Slot { event, config, requested, scheduled, window_start, created_at, message: None };
            Reserved::Assigned(slot)
        };
        Ok(batch.into_iter().map(assign).collect())
    }

    async fn slot(&self, _: EventId) -> Result<Option<Slot>, LedgerError> {
        Ok(None)
    }

    async fn release(&self, _: EventId) -> Result<Released, LedgerError> {
        Ok(Released::UnknownEvent)
    }

    async fn forecast(&self, _: SlotConfigName, _: Timestamp, _: u64) -> Result<Forecast, LedgerError> {
        Ok(Forecast::UnknownConfig)
    }
}

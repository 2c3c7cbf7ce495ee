use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::HANG;
use async_trait::async_trait;
use bytes::Bytes;
use tidegate_domain::{
    Bus, BusError, BusHealth, Claim, Consumer, Headers, Lane, MessageId, QueueName, Recipient, Timestamp,
};

const WAIT_MS: u64 = 500;
const AWAY_PAUSE: Duration = Duration::from_millis(10);

/// How to make a bus for a test.
#[async_trait]
pub trait BusBackend: Send + Sync + 'static {
    /// A client of a bus that carries the queues "sms" and "jobs". All clients of one backend value share their topics;
    /// those of another value have others.
    async fn open(&self) -> anyhow::Result<Arc<dyn Bus>>;

    /// Puts bytes into the normal lane of "sms", as a stranger would.
    async fn put(&self, bytes: &[u8]) -> anyhow::Result<()>;
}

/// A bus under test.
pub struct BusHarness {
    backend: Box<dyn BusBackend>,
    pub bus: Arc<dyn Bus>,
}

impl std::fmt::Debug for BusHarness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BusHarness").field("bus", &self.bus).finish_non_exhaustive()
    }
}

/// Runs one case on topics of its own.
pub async fn run(backend: impl BusBackend, case: impl AsyncFnOnce(&BusHarness)) {
    let harness = BusHarness::open(backend).await.expect("the bus opens");
    tokio::time::timeout(HANG, case(&harness)).await.expect("the case ends in time");
}

pub fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a name")
}

/// The n-th claim of "sms", of a recipient.
pub fn claim(n: u64, recipient: &str) -> Claim {
    let at = Timestamp::from_millis(1_763_244_000_000);
    Claim {
        id: MessageId::new(at, n, 7),
        queue: queue("sms"),
        recipient: Some(Recipient::new(recipient).expect("a recipient")),
        lane: Lane::Normal,
        user: None,
        admitted_at: at,
        attempt: 1,
        failures: 0,
        ack_attempts: 0,
        ack_required: false,
        headers: Headers::default(),
        token: n + 1_000,
        lease_until: at.plus_ms(30_000),
        body: Some(Bytes::from(format!("text {n}"))),
    }
}

impl BusHarness {
    pub(super) async fn open(backend: impl BusBackend) -> anyhow::Result<Self> {
        let bus = backend.open().await?;
        Ok(Self { backend: Box::new(backend), bus })
    }

    /// A client in what might be another process.
    pub async fn another(&self) -> Arc<dyn Bus> {
        self.backend.open().await.expect("the bus opens")
    }

    pub async fn consumer(&self) -> Box<dyn Consumer> {
        self.bus.consumer(queue("sms")).await.expect("a consumer")
    }

    pub async fn publish(&self, claims: &[Claim]) {
        let results = self.bus.publish(claims.to_vec()).await;
        assert_eq!(results, vec![Ok(()); claims.len()]);
    }

    pub async fn put(&self, bytes: &[u8]) {
        self.backend.put(bytes).await.expect("bytes are taken");
    }

    /// Waits until the bus says that it is there.
    pub async fn until_ready(&self) {
        while self.bus.health() != BusHealth::Ready {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Receives until so many different records have come, and says nothing is done. In the order they came, repetitions
/// left out.
pub async fn receive(consumer: &mut dyn Consumer, count: usize) -> Vec<Claim> {
    let (mut seen, mut received) = (HashSet::new(), Vec::new());
    while received.len() < count {
        let claims = receive_some(consumer, count - received.len(), WAIT_MS).await;
        received.extend(claims.into_iter().filter(|claim| seen.insert((claim.id, claim.token))));
    }
    received
}

/// What comes within a while. Nothing from a bus that takes itself for away: a broker that is slow to answer on a busy
/// machine is, until it answers.
pub async fn receive_some(consumer: &mut dyn Consumer, max: usize, wait_ms: u64) -> Vec<Claim> {
    match consumer.receive(max, wait_ms).await {
        Ok(claims) => claims,
        Err(BusError::Away(_)) => {
            tokio::time::sleep(AWAY_PAUSE).await;
            vec![]
        }
        Err(error) => panic!("a bus that is there refuses: {error:?}"),
    }
}

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tidegate_adapters::channels::webhook::{WebhookChannel, WebhookOptions};
use tidegate_domain::{
    Channel, Claim, Delivery, Headers, Lane, MessageId, QueueName, Recipient, Timestamp, UserId,
};
use tidegate_testkit::TestClock;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

/// A listener that answers every request as its script says, and remembers what it was told.
pub struct Sink {
    pub address: SocketAddr,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    requests: Mutex<Vec<Request>>,
}

#[derive(Debug, Clone)]
pub struct Request {
    pub line: String,
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

#[derive(Debug, Clone)]
pub enum Reply {
    Bytes(Vec<u8>),
    /// These, and then a byte every twenty milliseconds for ever.
    Drip(&'static str),
    Stall,
    Hangup,
}

pub type Script = Arc<dyn Fn(usize) -> Reply + Send + Sync>;

impl Reply {
    pub fn status(status: &str) -> Self {
        Self::Bytes(format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nhm").into_bytes())
    }

    pub fn raw(text: &str) -> Self {
        Self::Bytes(text.as_bytes().to_vec())
    }
}

impl Sink {
    /// The script's argument counts requests from zero.
    pub async fn start(script: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, script): (_, Script) = (Arc::<Seen>::default(), Arc::new(script));
        let theirs = seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                theirs.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, theirs.clone(), script.clone()));
            }
        });
        Self { address, seen }
    }

    pub async fn always(reply: Reply) -> Self {
        Self::start(move |_| reply.clone()).await
    }

    pub fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.seen.requests.lock().unwrap().clone()
    }

    /// With timeouts that a busy machine keeps, and loopback allowed.
    pub fn options(&self) -> WebhookOptions {
        WebhookOptions {
            connect_timeout: Duration::from_secs(30),
            total_timeout: Duration::from_secs(30),
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            ..WebhookOptions::new(format!("http://{}/hook?key=geheim", self.address))
        }
    }

    pub async fn deliver(&self, claim: &Claim) -> Delivery {
        deliver(&channel(self.options()), claim).await
    }

    /// To a provider that lets one wait: a second, and no longer.
    pub async fn deliver_soon(&self, claim: &Claim) -> Delivery {
        deliver(&channel(WebhookOptions { total_timeout: Duration::from_secs(1), ..self.options() }), claim)
            .await
    }
}

pub fn channel(options: WebhookOptions) -> WebhookChannel {
    WebhookChannel::new(options, Arc::new(TestClock::new())).unwrap()
}

pub async fn deliver(channel: &WebhookChannel, claim: &Claim) -> Delivery {
    channel.deliver(claim, &Bytes::from_static(b"hello")).await
}

pub fn claim() -> Claim {
    Claim {
        id: MessageId::new(TestClock::START, 7, 1),
        queue: QueueName::new("hooks").unwrap(),
        recipient: Some(Recipient::new("+4915112345").unwrap()),
        lane: Lane::Normal,
        user: Some(UserId::new("1001").unwrap()),
        admitted_at: TestClock::START,
        attempt: 3,
        failures: 2,
        ack_attempts: 0,
        ack_required: false,
        headers: Headers::default(),
        token: 1,
        lease_until: Timestamp::MAX,
        body: None,
    }
}

/// The reason of a delivery to be tried later.
pub fn later(delivery: Delivery) -> String {
    match delivery {
        Delivery::TryLater { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, seen: Arc<Seen>, script: Script) {
    while let Some(request) = read(&mut stream).await {
        let n = {
            let mut requests = seen.requests.lock().unwrap();
            requests.push(request);
            requests.len() - 1
        };
        match script(n) {
            Reply::Bytes(bytes) if stream.write_all(&bytes).await.is_ok() => {}
            Reply::Stall => std::future::pending().await,
            Reply::Drip(head) => {
                let _ = stream.write_all(head.as_bytes()).await;
                while stream.write_all(b"x").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                return;
            }
            Reply::Bytes(_) | Reply::Hangup => return,
        }
    }
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<Request> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.trim_end().split("\r\n");
    let line = lines.next()?.to_owned();
    let headers: HashMap<_, _> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    stream.read_exact(&mut body).await.ok()?;
    Some(Request { line, headers, body })
}

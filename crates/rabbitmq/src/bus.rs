use std::sync::Arc;

use async_trait::async_trait;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tidegate_domain::{Bus, BusError, BusHealth, Claim, Consumer, QueueName};
use tokio::sync::OnceCell;

use crate::consumer::RabbitConsumer;
use crate::endpoint::Endpoint;
use crate::error::{Fault, OpenError};
use crate::link::{Link, Purpose, Terms};
use crate::options::Options;
use crate::publisher::Publisher;
use crate::topology::Topology;

/// The bus on a RabbitMQ.
#[derive(Debug)]
pub struct RabbitBus {
    terms: Terms,
    prefetch: u16,
    publisher: Publisher,
    /// Made when somebody first wants to receive.
    receiving: OnceCell<Arc<Link>>,
}

impl RabbitBus {
    /// Declares what has to be there. A broker that can't be reached is no error: the bus is away, and looks for it.
    pub async fn open(options: Options) -> Result<Self, OpenError> {
        check(&options)?;
        let Options { url, roots_pem, exchange, routes, prefetch, connect_timeout, publish_timeout, .. } =
            options;
        let terms = Terms {
            endpoint: Endpoint::parse(&url)?,
            roots_pem,
            topology: Arc::new(Topology::new(exchange, routes)?),
            connect_timeout,
            probe_timeout: publish_timeout,
        };
        let link = Link::open(terms.clone(), Purpose::Publishing).await?;
        let publisher = Publisher::new(link, publish_timeout, options.record_bytes_max);
        Ok(Self { terms, prefetch: prefetch.max(1), publisher, receiving: OnceCell::new() })
    }
}

/// Whether a URL can be used at all, without connecting to anything.
pub fn check_url(url: &str) -> Result<(), OpenError> {
    Endpoint::parse(url).map(drop)
}

fn check(options: &Options) -> Result<(), OpenError> {
    Endpoint::parse(&options.url)?;
    Topology::new(options.exchange.clone(), options.routes.clone())?;
    options.roots_pem.as_deref().map_or(Ok(()), check_roots)
}

/// Whether these are certificates in PEM.
pub fn check_roots(pem: &str) -> Result<(), OpenError> {
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|_| OpenError::BadRoots)?;
        store.add(certificate).map_err(|_| OpenError::BadRoots)?;
    }
    if store.is_empty() { Err(OpenError::BadRoots) } else { Ok(()) }
}

#[async_trait]
impl Bus for RabbitBus {
    fn name(&self) -> &'static str {
        "rabbitmq"
    }

    async fn publish(&self, batch: Vec<Claim>) -> Vec<Result<(), BusError>> {
        self.publisher.publish(&batch).await
    }

    async fn consumer(&self, queue: QueueName) -> Result<Box<dyn Consumer>, BusError> {
        if !self.terms.topology.contains(&queue) {
            return Err(BusError::Refused(format!("the queue {queue} does not travel")));
        }
        let opening = || async {
            let link = Link::open(self.terms.clone(), Purpose::Receiving).await.map_err(Fault::Final)?;
            Ok::<_, BusError>(Arc::new(link))
        };
        let link = self.receiving.get_or_try_init(opening).await?;
        Ok(Box::new(RabbitConsumer::attach(link.clone(), queue, self.prefetch).await?))
    }

    fn health(&self) -> BusHealth {
        match (self.publisher.link().health(), self.receiving.get()) {
            (BusHealth::Ready, Some(receiving)) => receiving.health(),
            (health, _) => health,
        }
    }
}

use std::future::Future;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tower_service::Service;

use super::guard::Guard;
use super::stream::{Placed, Stream};
use super::target::Host;

/// A look-up cannot be cancelled: this bounds the threads that a dead resolver holds.
const LOOKUPS_MAX: usize = 8;
const ADDRESSES_MAX: usize = 16;

/// Opens connections to one target: looks its name up, lets the guard judge every address, and dials exactly
/// those that were judged. It is asked by the pool and ignores the URI it is given: there is only one.
#[derive(Clone)]
pub struct Connector(Arc<Inner>);

struct Inner {
    host: Host,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    guard: Guard,
    timeout: Duration,
    lookups: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("no connection within {0} ms")]
    Timeout(u128),
    #[error("cannot look up {0}: {1}")]
    Lookup(String, std::io::Error),
    #[error("{0} has no address")]
    NoAddress(String),
    #[error("{0} is not on the public internet, and no allowed network holds it: not dialled")]
    Forbidden(IpAddr),
    #[error("cannot connect to {0}: {1}")]
    Tcp(SocketAddr, std::io::Error),
    #[error("no connection to {0} in its share of the time")]
    Share(SocketAddr),
    #[error("TLS: {0}")]
    Tls(std::io::Error),
    #[error("all connections that there may be are in use")]
    NoPlace,
}

impl DialError {
    /// Whether nothing was dialled because this process, or its machine, had no file, port or place left.
    pub fn is_own_want(&self) -> bool {
        let is_want = |error: &std::io::Error| {
            let wants = [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL];
            wants.iter().any(|want| error.raw_os_error() == Some(want.raw_os_error()))
        };
        match self {
            Self::NoPlace => true,
            Self::Tcp(_, error) | Self::Lookup(_, error) => is_want(error),
            _ => false,
        }
    }
}

impl Connector {
    pub fn new(
        (host, port): (Host, u16),
        tls: Option<(TlsConnector, ServerName<'static>)>,
        guard: Guard,
        timeout: Duration,
        connections_max: usize,
    ) -> Self {
        let lookups = Arc::new(Semaphore::new(LOOKUPS_MAX));
        let places = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
        Self(Arc::new(Inner { host, port, tls, guard, timeout, lookups, places }))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Placed>;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let inner = self.0.clone();
        Box::pin(async move {
            // The pool goes on dialling when another connection has become free meanwhile. Without a bound, dials that
            // take long would outnumber the attempts.
            let place = timeout(inner.timeout, inner.places.clone().acquire_owned()).await;
            let Ok(Ok(place)) = place else { return Err(DialError::NoPlace) };
            let connected = timeout(inner.timeout, inner.connect()).await;
            let stream = connected.unwrap_or_else(|_| Err(DialError::Timeout(inner.timeout.as_millis())))?;
            Ok(TokioIo::new(Placed { stream, _place: place }))
        })
    }
}

impl Inner {
    async fn connect(&self) -> Result<Stream, DialError> {
        let tcp = self.dial().await?;
        // A request is written at once; waiting for more only delays it. A socket that refuses still works.
        let _ = tcp.set_nodelay(true);
        let Some((connector, name)) = &self.tls else { return Ok(Stream::Plain(tcp)) };
        let tls = connector.connect(name.clone(), tcp).await.map_err(DialError::Tls)?;
        Ok(Stream::Tls(Box::new(tls)))
    }

    /// One address after the other, each with its share of the time, so that one that swallows packets does not
    /// hide the next.
    async fn dial(&self) -> Result<TcpStream, DialError> {
        let begun = Instant::now();
        let addresses = self.permitted(self.addresses().await?)?;
        let mut failed: Option<DialError> = None;
        for (n, address) in addresses.iter().enumerate() {
            let left = self.timeout.saturating_sub(begun.elapsed());
            let share = left / u32::try_from(addresses.len() - n).unwrap_or(1);
            let error = match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => DialError::Tcp(*address, error),
                Err(_) => DialError::Share(*address),
            };
            // An address that could be dialled says more than one that could not.
            if failed.is_none() || !error.is_own_want() {
                failed = Some(error);
            }
        }
        Err(failed.unwrap_or_else(|| DialError::NoAddress(self.host.text())))
    }

    fn permitted(&self, mut addresses: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, DialError> {
        let first = addresses.first().copied();
        addresses.retain(|address| self.guard.permits(address.ip()));
        addresses.truncate(ADDRESSES_MAX);
        match first {
            Some(first) if addresses.is_empty() => Err(DialError::Forbidden(first.ip())),
            _ => Ok(addresses),
        }
    }

    async fn addresses(&self) -> Result<Vec<SocketAddr>, DialError> {
        let name = match &self.host {
            Host::Literal(ip) => return Ok(vec![SocketAddr::new(*ip, self.port)]),
            Host::Name(name) => name.clone(),
        };
        let failed = |error| DialError::Lookup(name.clone(), error);
        let permit = self.lookups.clone().acquire_owned().await;
        let permit = permit.map_err(|error| failed(std::io::Error::other(error)))?;
        let (host, port) = (name.clone(), self.port);
        let lookup = tokio::task::spawn_blocking(move || {
            // Held by the thread, not by the attempt, which may have given up.
            let _permit = permit;
            (host.as_str(), port).to_socket_addrs().map(|addresses| addresses.collect())
        });
        lookup.await.map_err(|error| failed(std::io::Error::other(error)))?.map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permitted(addresses: &[&str]) -> Result<Vec<String>, String> {
        let host = Host::Name("example.org".to_owned());
        let connector = Connector::new((host, 80), None, Guard::default(), Duration::from_secs(1), 1);
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let permitted = connector.0.permitted(addresses).map_err(|error| error.to_string())?;
        Ok(permitted.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn of_a_names_addresses_only_the_public_ones_are_dialled() {
        let mixed = ["127.0.0.1:80", "1.1.1.1:80", "[::1]:80", "[2606:4700::1111]:80", "10.0.0.1:80"];
        assert_eq!(permitted(&mixed).unwrap(), ["1.1.1.1:80", "[2606:4700::1111]:80"]);
        assert!(
            permitted(&["10.0.0.1:80", "[::ffff:10.0.0.1]:80"]).unwrap_err().starts_with("10.0.0.1 is not")
        );
        assert!(permitted(&[]).unwrap().is_empty());
    }

    #[test]
    fn a_want_of_files_or_ports_here_is_told_from_what_a_provider_does() {
        let address = "1.1.1.1:80".parse().unwrap();
        let failed = |error: Errno| DialError::Tcp(address, error.into()).is_own_want();
        assert!(failed(Errno::MFILE) && failed(Errno::NFILE) && failed(Errno::ADDRNOTAVAIL));
        assert!(!failed(Errno::CONNREFUSED) && !failed(Errno::TIMEDOUT));
        assert!(!DialError::Timeout(1).is_own_want());
    }
}

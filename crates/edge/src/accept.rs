use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::StatusCode;
use hyper::server::conn::http1;
use metrics::{Gauge, gauge};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};

use crate::connection::{self, Drain};
use crate::network::ClientNetwork;
use crate::shares::Shares;
use crate::{ApiError, Edge, Limits, tally};

/// Refusals under way at once, beyond `connections_max`. More than that are closed without an answer.
const REFUSALS_MAX: usize = 64;
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(250);
const REFUSAL_RETRY_MS: u64 = 1_000;
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Serves `app`, which `edge` was put around, on `listener` until `shutdown` resolves, then lets the requests under way finish for up to
/// `drain_timeout`. Dropping the future cuts all connections.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    edge: Edge,
    shutdown: impl Future<Output = ()> + Send,
) {
    let mut shutdown = pin!(shutdown);
    let mut server = Server::new(app, edge);
    let mut backoff = BACKOFF_MIN;
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(ended) = server.connections.join_next() => {
                server.reap(ended);
                continue;
            }
            Some(_) = server.refusals.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, client)) => {
                backoff = BACKOFF_MIN;
                server.take(stream, client);
            }
            // The client is gone again; the next one may be fine.
            Err(error) if is_about_one_connection(&error) => {}
            Err(error) => {
                // Out of file descriptors or memory. The connection stays in the backlog, so asking again at
                // once would spin; those that end in the meantime make room.
                tracing::warn!(%error, backoff_ms = backoff.as_millis(), "cannot accept connections");
                tally::refused("accept_error");
                tokio::select! {
                    () = &mut shutdown => break,
                    () = sleep(backoff) => {}
                }
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
        }
    }
    // Before the drain: a client that comes now is to be refused by the kernel, not left waiting.
    drop(listener);
    server.drain().await;
}

struct Server {
    app: Router,
    edge: Edge,
    limits: Limits,
    shares: Arc<Shares>,
    protocol: http1::Builder,
    drain: Arc<Drain>,
    connections: JoinSet<()>,
    refusals: JoinSet<()>,
    open: Gauge,
}

impl Server {
    fn new(app: Router, edge: Edge) -> Self {
        let limits = *edge.limits();
        Self {
            app,
            edge,
            limits,
            shares: Shares::new(limits.connections_per_client_max()),
            protocol: connection::protocol(&limits),
            drain: Arc::default(),
            connections: JoinSet::new(),
            refusals: JoinSet::new(),
            open: gauge!("tidegate_http_connections"),
        }
    }

    fn take(&mut self, stream: TcpStream, client: SocketAddr) {
        while let Some(ended) = self.connections.try_join_next() {
            self.reap(ended);
        }
        if self.connections.len() >= self.limits.connections_max {
            let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "too many connections");
            return self.refuse(stream, "connections_max", error);
        }
        // A proxy that may speak for others has the connections of them all.
        let share = match self.edge.is_trusted_proxy(client.ip()) {
            true => None,
            false => match self.shares.take(ClientNetwork::of(client.ip())) {
                Some(share) => Some(share),
                None => {
                    let message = "too many connections from this address";
                    let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_connections", message);
                    return self.refuse(stream, "connections_per_client", error);
                }
            },
        };
        // Responses leave in one write; waiting for an ACK to send the rest of one only adds latency.
        let _ = stream.set_nodelay(true);
        let (app, drain, protocol) = (self.app.clone(), self.drain.clone(), self.protocol.clone());
        let running = connection::run(protocol, stream, client, app, self.limits, drain);
        self.connections.spawn(async move {
            running.await;
            drop(share);
        });
        self.open.set(count(self.connections.len()));
    }

    /// Answers rather than leaving the client in the backlog: it learns at once that it should come back
    /// later or go elsewhere, instead of running into its own timeout. Costs one small task for at most
    /// `REFUSAL_TIMEOUT`, and at most `REFUSALS_MAX` of them.
    fn refuse(&mut self, stream: TcpStream, reason: &'static str, error: ApiError) {
        tally::refused(reason);
        while self.refusals.try_join_next().is_some() {}
        if self.refusals.len() < REFUSALS_MAX {
            let answer = self.edge.refusal(&error.retry_after_ms(REFUSAL_RETRY_MS));
            self.refusals.spawn(async move {
                let _ = timeout(REFUSAL_TIMEOUT, refuse(stream, answer)).await;
            });
        }
    }

    fn reap(&self, ended: Result<(), JoinError>) {
        self.open.set(count(self.connections.len()));
        if let Err(error) = ended
            && error.is_panic()
        {
            tracing::error!(%error, "a connection's task panicked");
        }
    }

    async fn drain(mut self) {
        self.drain.begin();
        let drain_timeout = self.limits.drain_timeout;
        let all_ended = async {
            while let Some(ended) = self.connections.join_next().await {
                self.reap(ended);
            }
        };
        if timeout(drain_timeout, all_ended).await.is_err() {
            tracing::warn!(connections = self.connections.len(), "drain timeout: connections cut");
            self.connections.shutdown().await;
        }
        self.open.set(0.0);
    }
}

/// Reading until the client closes keeps the kernel from resetting the connection over the unread request,
/// which would take the answer with it.
async fn refuse(mut stream: TcpStream, answer: Vec<u8>) -> io::Result<()> {
    stream.write_all(&answer).await?;
    stream.shutdown().await?;
    let mut scratch = [0; 1024];
    while stream.read(&mut scratch).await? > 0 {}
    Ok(())
}

fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

#[allow(clippy::cast_precision_loss)] // far below 2^52
fn count(connections: usize) -> f64 {
    connections as f64
}

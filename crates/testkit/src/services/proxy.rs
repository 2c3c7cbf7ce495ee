use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// A network between a client and a server that fails on command.
#[derive(Debug)]
pub struct FaultyProxy {
    pub address: SocketAddr,
    weather: Arc<watch::Sender<Weather>>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weather {
    Fair,
    /// Nothing moves, and nobody is told.
    Stalled,
    /// Connections are closed, and new ones as soon as they are made.
    Cut,
}

impl FaultyProxy {
    /// Within a runtime, which carries it.
    pub async fn start(server: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let weather = Arc::new(watch::Sender::new(Weather::Fair));
        let seen = weather.clone();
        let accepting = tokio::spawn(async move {
            // Connections end with the proxy: they are in here.
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(carry(client, server, seen.subscribe()));
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, weather, accepting })
    }

    /// What is sent is held back until it is [`heal`](Self::heal)ed.
    pub fn stall(&self) {
        self.weather.send_replace(Weather::Stalled);
    }

    pub fn cut(&self) {
        self.weather.send_replace(Weather::Cut);
    }

    pub fn heal(&self) {
        self.weather.send_replace(Weather::Fair);
    }
}

impl Drop for FaultyProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn carry(client: TcpStream, server: SocketAddr, mut weather: watch::Receiver<Weather>) {
    let until_cut = {
        let mut weather = weather.clone();
        async move { weather.wait_for(|now| *now == Weather::Cut).await.map(drop) }
    };
    let carrying = async {
        weather.wait_for(|now| *now == Weather::Fair).await.ok()?;
        let server = TcpStream::connect(server).await.ok()?;
        // Small packets at once, as both ends send them.
        client.set_nodelay(true).and(server.set_nodelay(true)).ok()?;
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        tokio::select! {
            () = pour(from_client, to_server, weather.clone()) => {}
            () = pour(from_server, to_client, weather.clone()) => {}
        }
        Some(())
    };
    tokio::select! {
        _ = until_cut => {}
        _ = carrying => {}
    }
}

async fn pour(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut weather: watch::Receiver<Weather>) {
    let mut buffer = vec![0; 1 << 14];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if weather.wait_for(|now| *now == Weather::Fair).await.is_err()
            || to.write_all(&buffer[..length]).await.is_err()
        {
            break;
        }
    }
    // That one end has hung up does not get through either.
    let _ = weather.wait_for(|now| *now == Weather::Fair).await;
}

use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lapin::tcp::{AMQPUriTcpExt as _, AsyncTcpStream, OwnedTLSConfig};
use lapin::{Connection, ConnectionProperties};
use tokio::time::timeout;
use tracing::subscriber::NoSubscriber;

use crate::endpoint::Endpoint;
use crate::error::Fault;

/// A connection, and its socket on the side: lapin waits for a broker's good-bye without end, and keeps a thread for it.
#[derive(Debug)]
pub struct Wire {
    pub connection: Connection,
    socket: Socket,
}

/// Cuts the connection unless it was kept.
#[derive(Debug, Default)]
struct Socket {
    line: Arc<Mutex<Line>>,
    keep: bool,
}

#[derive(Debug, Default)]
enum Line {
    #[default]
    Dialling,
    Up(TcpStream),
    Cut,
}

impl Wire {
    pub async fn dial(
        endpoint: &Endpoint,
        roots_pem: Option<String>,
        connect_timeout: Duration,
    ) -> Result<Self, Fault> {
        let mut socket = Socket::default();
        let line = socket.line.clone();
        let tls = OwnedTLSConfig { identity: None, cert_chain: roots_pem };
        let runtime = lapin::runtime::default_runtime().map_err(|error| Fault::Away(error.to_string()))?;
        let properties = ConnectionProperties::default().with_connection_name("tidegate".into());
        let connecting = Connection::connector(
            endpoint.uri(),
            runtime,
            async move |uri, runtime| {
                hush();
                let dialling = uri.connect_with_config_async(tls.as_ref(), &runtime);
                let late = |_| std::io::Error::from(std::io::ErrorKind::TimedOut);
                let dialled = timeout(connect_timeout, dialling).await.map_err(late)??;
                let own = match &dialled {
                    AsyncTcpStream::Plain(plain) => plain.get_ref().as_fd().try_clone_to_owned(),
                    AsyncTcpStream::Rustls(tls) => tls.get_ref().0.get_ref().as_fd().try_clone_to_owned(),
                    _ => Err(std::io::ErrorKind::Unsupported.into()),
                }?;
                up(&line, own.into())?;
                Ok(dialled)
            },
            properties,
        );
        let connection = match timeout(connect_timeout, connecting).await {
            Ok(connected) => connected.map_err(|error| Fault::of_login(&error, endpoint))?,
            Err(_) => return Err(Fault::Away("it does not answer in time".to_owned())),
        };
        socket.keep = true;
        Ok(Self { connection, socket })
    }

    /// Without a word. Whoever waits for something on it is told at once.
    pub fn cut(&self) {
        self.socket.cut();
    }
}

impl Socket {
    fn cut(&self) {
        let line =
            std::mem::replace(&mut *self.line.lock().unwrap_or_else(PoisonError::into_inner), Line::Cut);
        if let Line::Up(stream) = line {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn up(line: &Mutex<Line>, stream: TcpStream) -> std::io::Result<()> {
    let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
    if matches!(*line, Line::Cut) {
        return Err(std::io::ErrorKind::ConnectionAborted.into());
    }
    *line = Line::Up(stream);
    Ok(())
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.keep {
            self.cut();
        }
    }
}

/// On lapin's own thread, for as long as that lives: it logs returned messages with their content, which no log may hold.
/// What matters of what it sees reaches us as errors and events.
fn hush() {
    std::mem::forget(tracing::subscriber::set_default(NoSubscriber::default()));
}

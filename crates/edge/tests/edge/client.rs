use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// Far beyond every limit in these tests: reached only when the server hangs.
/// Ends a wait that would not end by itself, and bounds nothing else.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// A client that sends exactly the bytes it is told to.
pub struct Client {
    pub stream: TcpStream,
    unread: Vec<u8>,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Client {
    pub async fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, unread: Vec::new() }
    }

    /// From an address of this machine other than the usual one.
    pub async fn connect_from(from: [u8; 4], addr: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        Self { stream: socket.connect(addr).await.unwrap(), unread: Vec::new() }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    pub async fn ask(&mut self, bytes: impl AsRef<[u8]>) -> Answer {
        self.send(bytes).await;
        self.answer().await
    }

    pub async fn get(&mut self, path: &str, headers: &str) -> Answer {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n")).await
    }

    /// Sends to a server that may have closed already. `None` when it has, instead of an answer.
    pub async fn try_ask(&mut self, bytes: impl AsRef<[u8]>) -> Option<Answer> {
        self.stream.write_all(bytes.as_ref()).await.ok()?;
        self.next_answer().await
    }

    pub async fn post(&mut self, path: &str, headers: &str, body: impl AsRef<[u8]>) -> Answer {
        let body = body.as_ref();
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n", body.len());
        self.send([head.as_bytes(), headers.as_bytes(), b"\r\n", body].concat()).await;
        self.answer().await
    }

    pub async fn answer(&mut self) -> Answer {
        self.next_answer().await.expect("an answer before the end of the connection")
    }

    /// `None` when the connection ends first.
    pub async fn next_answer(&mut self) -> Option<Answer> {
        let end = loop {
            if let Some(end) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            self.read_more().await?;
        };
        let head = String::from_utf8(self.unread.drain(..end + 4).collect()).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.map(|line| line.split_once(": ").unwrap());
        let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
        let mut answer = Answer { status, headers, body: String::new() };
        let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
        while self.unread.len() < length {
            self.read_more().await?;
        }
        answer.body = String::from_utf8(self.unread.drain(..length).collect()).unwrap();
        Some(answer)
    }

    /// Waits until the server ends the connection, without sending anything more.
    pub async fn closed(&mut self) {
        assert_eq!(self.read_more().await, None, "{:?}", String::from_utf8_lossy(&self.unread));
    }

    async fn read_more(&mut self) -> Option<()> {
        let read = timeout(PATIENCE, self.stream.read_buf(&mut self.unread)).await.expect("the server hangs");
        matches!(read, Ok(1..)).then_some(())
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// That the answer is an error in the one shape, with an id.
    pub fn assert_error(&self, status: u16, code: &str, path: &str) {
        let body = self.json();
        assert_eq!((self.status, self.code().as_str()), (status, code), "{self:?}");
        assert_eq!(
            (body["status"].as_u64(), body["path"].as_str()),
            (Some(status.into()), Some(path)),
            "{self:?}"
        );
        for member in ["timestamp", "error", "message"] {
            assert!(body[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {self:?}");
        }
        assert!(self.header("x-request-id").is_some_and(|id| !id.is_empty()), "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
    }

    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
}

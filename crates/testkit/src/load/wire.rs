use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use crate::HANG;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const RESPONSE_BYTES_MAX: usize = 16 << 20;

/// A keep-alive connection with at most one request in flight.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Response<'a> {
    pub status: u16,
    pub body: &'a [u8],
    /// The server will close the connection.
    pub closes: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    head_bytes: usize,
    body_bytes: usize,
    closes: bool,
}

impl Connection {
    pub async fn open(server: SocketAddr) -> io::Result<Self> {
        let stream = timeout(HANG, TcpStream::connect(server)).await??;
        stream.set_nodelay(true)?;
        Ok(Self { stream, received: Vec::with_capacity(4_096) })
    }

    pub async fn exchange(&mut self, request: &[u8]) -> io::Result<Response<'_>> {
        let head = timeout(HANG, self.exchange_untimed(request)).await??;
        let body = &self.received[head.head_bytes..head.head_bytes + head.body_bytes];
        Ok(Response { status: head.status, body, closes: head.closes })
    }

    async fn exchange_untimed(&mut self, request: &[u8]) -> io::Result<Head> {
        self.received.clear();
        self.stream.write_all(request).await?;
        let mut head = None;
        loop {
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if head.is_none() {
                head = parse_head(&self.received)?;
            }
            match &head {
                Some(known) if self.received.len() >= known.head_bytes + known.body_bytes => break,
                _ if self.received.len() > RESPONSE_BYTES_MAX => return Err(ErrorKind::FileTooLarge.into()),
                _ => (),
            }
        }
        head.ok_or_else(|| ErrorKind::InvalidData.into())
    }
}

/// One request on a connection of its own: status and body.
pub async fn get(server: SocketAddr, path: &str) -> io::Result<(u16, Vec<u8>)> {
    once(server, "GET", path, b"").await
}

pub async fn post(server: SocketAddr, path: &str, json: &[u8]) -> io::Result<(u16, Vec<u8>)> {
    once(server, "POST", path, json).await
}

async fn once(server: SocketAddr, method: &str, path: &str, json: &[u8]) -> io::Result<(u16, Vec<u8>)> {
    let mut request = Vec::new();
    write_request(&mut request, method, path, &[("Connection", "close")], json);
    let mut connection = Connection::open(server).await?;
    let response = connection.exchange(&request).await?;
    Ok((response.status, response.body.to_vec()))
}

/// Appends a whole request with a JSON body, which may be empty.
pub fn write_request(request: &mut Vec<u8>, method: &str, path: &str, headers: &[(&str, &str)], json: &[u8]) {
    for part in [method, " ", path, " HTTP/1.1\r\nHost: localhost\r\n"] {
        request.extend_from_slice(part.as_bytes());
    }
    for (name, value) in headers {
        for part in [name, ": ", value, "\r\n"] {
            request.extend_from_slice(part.as_bytes());
        }
    }
    if !json.is_empty() {
        request.extend_from_slice(b"Content-Type: application/json\r\nContent-Length: ");
        request.extend_from_slice(json.len().to_string().as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    request.extend_from_slice(json);
}

/// The head once it is complete. A response of unknown length is refused: the server under test sends none.
fn parse_head(received: &[u8]) -> io::Result<Option<Head>> {
    let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Ok(None);
    };
    let text = str::from_utf8(&received[..end]).map_err(|_| ErrorKind::InvalidData)?;
    let mut lines = text.split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let status = status_line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let status = status.ok_or(ErrorKind::InvalidData)?;
    let mut head = Head { status, head_bytes: end + 4, body_bytes: 0, closes: false };
    let mut has_length = matches!(status, 204 | 304);
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(ErrorKind::InvalidData)?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            head.body_bytes = value.parse().map_err(|_| ErrorKind::InvalidData)?;
            has_length = true;
        } else if name.eq_ignore_ascii_case("connection") {
            head.closes = value.eq_ignore_ascii_case("close");
        }
    }
    if has_length { Ok(Some(head)) } else { Err(ErrorKind::Unsupported.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_once_it_is_whole() {
        let response =
            b"HTTP/1.1 429 Too Many Requests\r\ncontent-LENGTH: 5\r\nConnection: Close\r\n\r\nhello";
        let expected = Head { status: 429, head_bytes: response.len() - 5, body_bytes: 5, closes: true };
        for cut in 0..response.len() - 5 {
            assert_eq!(parse_head(&response[..cut]).unwrap(), None);
        }
        assert_eq!(parse_head(response).unwrap(), Some(expected));
    }

    #[test]
    fn what_it_does_not_understand_is_an_error() {
        for wrong in [
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 2x0 OK\r\nContent-Length: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
            "SMTP ready\r\n\r\n",
        ] {
            assert!(parse_head(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(parse_head(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap().is_some());
    }

    #[test]
    fn a_request_is_written_whole() {
        let mut request = Vec::new();
        write_request(&mut request, "POST", "/api/send", &[("Idempotency-Key", "k")], b"{}");
        let expected = "POST /api/send HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: k\r\n\
                        Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(String::from_utf8(request).unwrap(), expected);
    }
}

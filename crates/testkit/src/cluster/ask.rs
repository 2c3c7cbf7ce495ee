use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::load::write_request;

/// Longer than a gateway waits for its database.
pub const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub retry_after: bool,
    /// Null when it is not JSON.
    pub body: Value,
}

/// One request on a connection of its own. `None`: no answer in time, or not a whole one.
pub async fn ask(
    server: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
    within: Duration,
) -> Option<Reply> {
    let mut request = Vec::new();
    let headers: Vec<_> = headers.iter().copied().chain([("Connection", "close")]).collect();
    write_request(&mut request, method, path, &headers, body);
    let exchange = async {
        let mut stream = TcpStream::connect(server).await.ok()?;
        stream.write_all(&request).await.ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok()?;
        parse(&answer)
    };
    timeout(within, exchange).await.ok().flatten()
}

fn parse(answer: &[u8]) -> Option<Reply> {
    let (head, body) = str::from_utf8(answer).ok()?.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let header = |name: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    };
    let whole = header("content-length").is_none_or(|length| length.parse() == Ok(body.len()));
    let retry_after = header("retry-after").is_some();
    whole.then(|| Reply { status, retry_after, body: serde_json::from_str(body).unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_was_cut_off_is_none() {
        let whole = b"HTTP/1.1 503 X\r\nRetry-After: 1\r\nContent-Length: 9\r\n\r\n{\"code\":1";
        assert!(parse(whole).is_some_and(|reply| reply.retry_after && reply.status == 503));
        assert!(parse(&whole[..whole.len() - 1]).is_none() && parse(&whole[..20]).is_none());
    }
}

//! A provider that takes everything: counts requests, answers 200, keeps connections open.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    listen: SocketAddr,
}

pub async fn serve(args: &Args) -> anyhow::Result<()> {
    let listener = TcpListener::bind(args.listen).await?;
    let taken = Arc::new(AtomicU64::new(0));
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let taken = taken.clone();
        // A connection that breaks is the client's affair.
        tokio::spawn(async move { drop(converse(stream, &taken).await) });
    }
}

/// `GET` answers how many `POST`s there were.
async fn converse(mut stream: TcpStream, taken: &AtomicU64) -> std::io::Result<()> {
    let mut buffer = Vec::with_capacity(8_192);
    loop {
        while let Some(length) = request_length(&buffer) {
            if buffer.len() < length {
                break;
            }
            let answer = if buffer.starts_with(b"GET") {
                let count = taken.load(Ordering::Relaxed).to_string();
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{count}", count.len())
            } else {
                taken.fetch_add(1, Ordering::Relaxed);
                "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned()
            };
            buffer.drain(..length);
            stream.write_all(answer.as_bytes()).await?;
        }
        if stream.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
    }
}

/// Head and body together, once the head is there.
fn request_length(buffer: &[u8]) -> Option<usize> {
    let head = buffer.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&buffer[..head]).ok()?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    Some(head + length.unwrap_or(0))
}

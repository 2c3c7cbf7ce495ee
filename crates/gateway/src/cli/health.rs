//! `tidegate health`: for probes of a container, which has no other program to ask with.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{SettingsArgs, secrets};
use crate::config::Loaded;

/// Far more than a gateway says about itself.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
const OK: u16 = 200;

#[derive(Debug, Args)]
pub struct HealthArgs {
    /// Whether it takes traffic; the default.
    #[arg(long, conflicts_with = "live")]
    ready: bool,
    /// Whether it answers at all, whatever becomes of its ledger.
    #[arg(long)]
    live: bool,
    /// For dialling and the whole answer together.
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    timeout_ms: u64,
    #[command(flatten)]
    settings: SettingsArgs,
}

/// What an answer says, as far as a probe cares.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    /// One line.
    text: String,
}

pub fn health(args: HealthArgs) -> anyhow::Result<ExitCode> {
    let listen = Loaded::from_sources(&args.settings.sources()?)?.settings.listen;
    if listen.port() == 0 {
        bail!("server.listen is {listen}, and nobody can tell which port that became; choose one");
    }
    let address = reachable(listen);
    let state = if args.live { "live" } else { "ready" };
    let within = Duration::from_millis(args.timeout_ms);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked = async { tokio::time::timeout(within, ask(address, &format!("/health/{state}"))).await };
    let Ok(answer) = runtime.block_on(asked) else {
        bail!("the gateway on {address} did not answer within {} ms", args.timeout_ms);
    };
    let Answer { status, text } = answer?;
    match status {
        OK => secrets::print(&format!("{address} is {state}: {text}\n")),
        _ => bail!("{address} is not {state}, it answers {status}: {text}"),
    }
}

/// A gateway that listens everywhere is asked on loopback.
fn reachable(listen: SocketAddr) -> SocketAddr {
    match listen {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => (Ipv4Addr::LOCALHOST, v4.port()).into(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => (Ipv6Addr::LOCALHOST, v6.port()).into(),
        other => other,
    }
}

async fn ask(address: SocketAddr, path: &str) -> anyhow::Result<Answer> {
    let mut stream = TcpStream::connect(address).await.with_context(|| {
        format!("nobody can be reached on {address}; is a gateway running with these settings?")
    })?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let mut answer = Vec::new();
    let exchange = async {
        stream.write_all(request.as_bytes()).await?;
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await
    };
    exchange.await.with_context(|| format!("the connection to {address} broke"))?;
    parse(&answer)
        .with_context(|| format!("whoever listens on {address} is not a gateway: it speaks no HTTP"))
}

fn parse(answer: &[u8]) -> Option<Answer> {
    let answer = String::from_utf8_lossy(answer);
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    let text = body.trim().replace(char::is_control, " ");
    Some(Answer { status, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_that_listens_everywhere_is_asked_on_loopback() {
        for (listen, asked) in [
            ("0.0.0.0:80", "127.0.0.1:80"),
            ("[::]:80", "[::1]:80"),
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("10.1.2.3:80", "10.1.2.3:80"),
        ] {
            assert_eq!(reachable(listen.parse().unwrap()).to_string(), asked);
        }
    }

    #[test]
    fn an_answer_is_a_status_and_one_line() {
        let answer = |text: &str| parse(text.as_bytes()).map(|answer| (answer.status, answer.text));
        let told = answer("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 9\r\n\r\n{\"a\":\n1}\n");
        assert_eq!(told, Some((503, "{\"a\": 1}".to_owned())));
        assert_eq!(answer("HTTP/1.0 200 OK\r\nServer: x\r\n\r\n"), Some((200, String::new())));
        for other in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 fine\r\n\r\n", "-ERR unknown command\r\n\r\n"] {
            assert_eq!(answer(other), None, "{other:?}");
        }
    }
}

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tidegate_domain::Durability;
use tidegate_edge::PrincipalSpec;

use crate::config::Role;

/// What whoever starts the gateway needs to know: where it is, where the data lies, who may call, what to
/// try first.
#[derive(Debug)]
pub struct Announcement<'a> {
    pub address: SocketAddr,
    /// A directory, or a database without its password.
    pub data: &'a str,
    pub durability: Durability,
    pub principals: &'a [PrincipalSpec],
    pub role: Role,
}

impl Announcement<'_> {
    pub fn make(&self) {
        let (address, data) = (self.address, self.data);
        let version = env!("CARGO_PKG_VERSION");
        let role = self.role.as_str();
        tracing::info!(%address, %data, version, role, principals = self.principals.len(), "listening");
        if self.principals.is_empty() {
            tracing::info!("open to this machine only (loopback), because no principals are configured");
        }
        if self.durability != Durability::Fsync {
            tracing::warn!("the ledger does not sync to disk: a power cut can lose accepted messages");
        }
        if std::io::stderr().is_terminal() {
            eprint!("{}", self.block());
        } else {
            // Without quotes, so that it can be pasted from a JSON line too; the answer links to the rest.
            let path = if self.role.serves_api() { "/" } else { "/health/ready" };
            tracing::info!("try: curl -sS{} http://{}{path}", self.login(), reachable(self.address));
        }
    }

    fn block(&self) -> String {
        let base = format!("http://{}", reachable(self.address));
        let login = self.login();
        let mut text = format!("\n  Tidegate {} listens on {base}\n", env!("CARGO_PKG_VERSION"));
        let _ = writeln!(text, "  Data: {}", self.data);
        if self.principals.is_empty() {
            text.push_str("  Open to this machine only (loopback), because no principals are configured.\n");
        }
        if self.durability != Durability::Fsync {
            text.push_str("  The ledger does not sync to disk: a power cut can lose accepted messages.\n");
        }
        match self.role {
            Role::All => {}
            Role::Gateway => {
                text.push_str("  Role: gateway. Messages are sent by processes with the role sender.\n")
            }
            Role::Sender => {
                let _ =
                    write!(text, "  Role: sender. It has no API.\n\ncurl -sS{login} {base}/health/ready\n\n");
                return text;
            }
        }
        let _ = write!(
            text,
            "\n  Give a user a quota of 5 messages a minute, and send one:\n\n\
             curl -sS{login} {base}/api/config -d '{{\"userId\":\"alice\",\"rateLimit\":5,\"timeWindow\":1}}' -H 'Content-Type: application/json'\n\
             curl -sS{login} {base}/api/send -d '{{\"userId\":\"alice\",\"message\":\"hello\"}}' -H 'Content-Type: application/json'\n\n"
        );
        text
    }

    /// curl asks for the password of `-u NAME`; an API key cannot be shown, only its place.
    fn login(&self) -> String {
        let with_password = self.principals.iter().find(|principal| principal.password_hash.is_some());
        match (with_password, self.principals.is_empty()) {
            (_, true) => String::new(),
            (Some(principal), _) => format!(" -u '{}'", principal.name.replace('\'', r"'\''")),
            (None, _) => " -H \"X-Api-Key: $API_KEY\"".to_owned(),
        }
    }
}

/// An address to connect to: "any" is not one.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_can_be_pasted() {
        let announcement = Announcement {
            address: "0.0.0.0:8080".parse().unwrap(),
            data: "/data",
            durability: Durability::OsBuffer,
            principals: &[],
            role: Role::All,
        };
        let block = announcement.block();
        let lines: Vec<_> = block.lines().filter(|line| line.starts_with("curl ")).collect();
        assert_eq!(lines.len(), 2, "{block}");
        assert!(lines[0].contains(" http://127.0.0.1:8080/api/config -d '{\"userId\""), "{block}");
        assert!(block.contains("loopback") && block.contains("power cut"), "{block}");
    }
}

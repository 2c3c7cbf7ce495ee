use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use axum::extract::Request;
use http::HeaderMap;

use crate::ClientAddr;

/// Hops read at most: whoever sends more is not a proxy.
const HOPS_MAX: usize = 32;

/// A network such as `10.0.0.0/8` or `2001:db8::/32`, or a single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    network: u128,
    prefix: u8,
    v4: bool,
}

/// Where a request comes from. `X-Forwarded-For` counts only as far as each hop is a trusted proxy: it is read
/// from the right, where our own proxies write, and the first that is not one of them is the client. What can't
/// be read ends it: the last hop that was good is then the client.
pub fn client_ip(peer: IpAddr, headers: &HeaderMap, trusted: &[Cidr]) -> IpAddr {
    let mut client = peer.to_canonical();
    if trusted.is_empty() {
        return client;
    }
    let is_trusted = |ip: IpAddr| trusted.iter().any(|network| network.contains(ip));
    let lines = headers.get_all("x-forwarded-for").iter().rev();
    let mut hops = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b',')).take(HOPS_MAX);
    while is_trusted(client) {
        match hops.next().and_then(hop) {
            Some(ip) => client = ip,
            None => break,
        }
    }
    client
}

/// The same of a request, whose connection says who the peer is.
pub fn peer_client(request: &Request, trusted: &[Cidr]) -> IpAddr {
    let peer = request.extensions().get().map(|ClientAddr(address)| address.ip());
    client_ip(peer.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), request.headers(), trusted)
}

/// The text under which an address has its bucket: for IPv6 its network, since one client has all of it.
pub fn bucket_key(ip: IpAddr, ipv6_prefix: u8) -> String {
    match ip.to_canonical() {
        IpAddr::V4(ip) => dotted(ip),
        IpAddr::V6(ip) => {
            let network = Ipv6Addr::from_bits(ip.to_bits() & mask(ipv6_prefix));
            if ipv6_prefix >= 128 { network.to_string() } else { format!("{network}/{ipv6_prefix}") }
        }
    }
}

/// As `Display` writes it; its padding machinery costs more than the rest of a policy.
fn dotted(ip: Ipv4Addr) -> String {
    let mut text = String::with_capacity(15);
    for (place, octet) in ip.octets().into_iter().enumerate() {
        if place > 0 {
            text.push('.');
        }
        for (least, unit) in [(100, 100), (10, 10), (0, 1)] {
            if octet >= least {
                text.push(char::from(b'0' + octet / unit % 10));
            }
        }
    }
    text
}

/// An address, with a port or without.
fn hop(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let ip = bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))?;
    Some(IpAddr::to_canonical(&ip))
}

fn mask(prefix: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0)
}

impl Cidr {
    pub fn contains(&self, ip: IpAddr) -> bool {
        let (bits, v4) = bits(ip.to_canonical());
        v4 == self.v4 && bits & mask(self.prefix) == self.network
    }
}

/// IPv4 in the upper bits, so that one mask serves both.
fn bits(ip: IpAddr) -> (u128, bool) {
    match ip {
        IpAddr::V4(ip) => (u128::from(ip.to_bits()) << 96, true),
        IpAddr::V6(ip) => (ip.to_bits(), false),
    }
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a network");
        let (address, prefix) =
            text.split_once('/').map_or((text, None), |(address, rest)| (address, Some(rest)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let (network, v4) = bits(address);
        let longest = if v4 { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(longest), str::parse).map_err(|_| wrong())?;
        if prefix > longest {
            return Err(wrong());
        }
        if network & mask(prefix) != network {
            return Err(format!("{text:?} has bits set beyond its prefix"));
        }
        Ok(Self { network, prefix, v4 })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v4 = || u32::try_from(self.network >> 96).unwrap_or_default();
        let ip: IpAddr =
            if self.v4 { Ipv4Addr::from_bits(v4()).into() } else { Ipv6Addr::from_bits(self.network).into() };
        write!(f, "{ip}/{}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, forwarded: &[&'static str], trusted: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in forwarded {
            headers.append("x-forwarded-for", http::HeaderValue::from_static(line));
        }
        let trusted: Vec<Cidr> = trusted.iter().map(|text| text.parse().unwrap()).collect();
        client_ip(peer.parse().unwrap(), &headers, &trusted).to_string()
    }

    #[test]
    fn forwarded_for_counts_from_the_right_and_from_proxies_alone() {
        let trusted = ["10.0.0.0/8", "2001:db8::/32"];
        for (peer, forwarded, expected) in [
            ("10.0.0.1", &["203.0.113.7"][..], "203.0.113.7"),
            // Not a proxy: it may write what it likes.
            ("198.51.100.1", &["203.0.113.7"], "198.51.100.1"),
            // What the client wrote stands to the left of what the proxies added.
            ("10.0.0.1", &["1.2.3.4, 203.0.113.7, 10.0.0.2"], "203.0.113.7"),
            ("10.0.0.1", &["1.2.3.4", "203.0.113.7,10.0.0.2"], "203.0.113.7"),
            ("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.7, unknown, 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["203.0.113.7, "], "10.0.0.1"),
            ("::ffff:10.0.0.1", &["::ffff:203.0.113.7"], "203.0.113.7"),
            ("10.0.0.1", &["203.0.113.7:4711"], "203.0.113.7"),
            ("2001:db8::1", &["[2001:67c::9]:443"], "2001:67c::9"),
            ("2001:db8::1", &["[2001:67c::9]"], "2001:67c::9"),
        ] {
            assert_eq!(client(peer, forwarded, &trusted), expected, "{peer} {forwarded:?}");
        }
        assert_eq!(client("10.0.0.1", &["203.0.113.7"], &[]), "10.0.0.1");
    }

    #[test]
    fn a_long_chain_of_proxies_ends_somewhere() {
        let chain: &'static str = Box::leak(format!("1.1.1.1{}", ",10.0.0.2".repeat(500)).into_boxed_str());
        assert_eq!(client("10.0.0.1", &[chain], &["10.0.0.0/8"]), "10.0.0.2");
    }

    #[test]
    fn one_network_is_one_client() {
        let key = |ip: &str, prefix| bucket_key(ip.parse().unwrap(), prefix);
        assert_eq!(key("2001:db8:1:2:3::4", 64), "2001:db8:1:2::/64");
        assert_eq!(key("2001:db8:1:2:ffff::", 64), key("2001:db8:1:2::1", 64));
        assert_ne!(key("2001:db8:1:3::1", 64), key("2001:db8:1:2::1", 64));
        assert_eq!(key("2001:db8:1:3::1", 128), "2001:db8:1:3::1");
        assert_eq!(key("2001:db8:1:3::1", 48), "2001:db8:1::/48");
        assert_eq!(key("::ffff:192.0.2.1", 64), "192.0.2.1");
    }

    #[test]
    fn addresses_are_written_as_ever() {
        for bits in (0..=255u32).flat_map(|octet| [octet, octet << 8 | 7, octet << 24 | 0x000a_6400]) {
            assert_eq!(dotted(Ipv4Addr::from_bits(bits)), Ipv4Addr::from_bits(bits).to_string());
        }
    }

    #[test]
    fn networks_are_read_strictly() {
        let parse = |text: &str| text.parse::<Cidr>().map(|network| network.to_string());
        assert_eq!(parse("10.0.0.0/8").unwrap(), "10.0.0.0/8");
        assert_eq!(parse("192.0.2.1").unwrap(), "192.0.2.1/32");
        assert_eq!(parse("::/0").unwrap(), "::/0");
        for wrong in ["10.0.0.1/8", "10.0.0.0/33", "10.0.0/8", "", "a", "::1/129", "10.0.0.0/", "10.0.0.0/-1"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(!"0.0.0.0/0".parse::<Cidr>().unwrap().contains("::1".parse().unwrap()));
    }
}

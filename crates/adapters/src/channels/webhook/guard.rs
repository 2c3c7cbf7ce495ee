use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Which addresses may be dialled: those of the public internet, and what the operator allows beside them.
///
/// A URL is only a name, and whoever owns the name decides where it leads: to this machine, its neighbours or the
/// metadata service of its cloud. So the guard judges addresses, when they are dialled.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    allow: Vec<IpNet>,
}

/// Everything of IPv4 that is not the public internet (IANA's special-purpose registry, and one address more).
const FORBIDDEN_V4: [Ipv4Net; 17] = [
    v4([0, 0, 0, 0], 8),
    v4([10, 0, 0, 0], 8),
    v4([100, 64, 0, 0], 10),
    v4([127, 0, 0, 0], 8),
    // Azure's platform answers there, from inside every virtual machine.
    v4([168, 63, 129, 16], 32),
    v4([169, 254, 0, 0], 16),
    v4([172, 16, 0, 0], 12),
    v4([192, 0, 0, 0], 24),
    v4([192, 0, 2, 0], 24),
    v4([192, 88, 99, 0], 24),
    v4([192, 168, 0, 0], 16),
    v4([198, 18, 0, 0], 15),
    v4([198, 51, 100, 0], 24),
    v4([203, 0, 113, 0], 24),
    v4([224, 0, 0, 0], 4),
    v4([240, 0, 0, 0], 4),
    v4([255, 255, 255, 255], 32),
];

/// All that is given out as public. What lies outside is loopback, link-local, unique-local, multicast, mapped
/// or nobody's.
const PUBLIC_V6: Ipv6Net = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);
/// Protocol assignments (Teredo and ORCHID among them), and two ranges for documentation.
const FORBIDDEN_V6: [Ipv6Net; 3] = [
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23),
    v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32),
    v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),
];
/// How an IPv6-only network reaches IPv4: the last four bytes are the address.
const NAT64: Ipv6Net = v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);
const SIX_TO_FOUR: Ipv6Net = v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16);

impl Guard {
    pub fn new(allow: Vec<IpNet>) -> Self {
        Self { allow }
    }

    pub fn permits(&self, ip: IpAddr) -> bool {
        // An IPv4 address in the dress of an IPv6 one is that IPv4 address.
        let ip = ip.to_canonical();
        self.allow.iter().any(|network| network.contains(&ip)) || is_public(ip)
    }
}

fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) if NAT64.contains(&ip) => is_public_v4(embedded(ip, 12)),
        IpAddr::V6(ip) if SIX_TO_FOUR.contains(&ip) => is_public_v4(embedded(ip, 2)),
        IpAddr::V6(ip) => PUBLIC_V6.contains(&ip) && !FORBIDDEN_V6.iter().any(|net| net.contains(&ip)),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    !FORBIDDEN_V4.iter().any(|network| network.contains(&ip))
}

fn embedded(ip: Ipv6Addr, at: usize) -> Ipv4Addr {
    let octets = ip.octets();
    Ipv4Addr::new(octets[at], octets[at + 1], octets[at + 2], octets[at + 3])
}

const fn v4(octets: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]), prefix)
}

const fn v6(s: [u16; 8], prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]), prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(guard: &Guard, ip: &str) -> bool {
        guard.permits(ip.parse().unwrap())
    }

    #[test]
    fn the_public_internet_may_be_dialled() {
        let guard = Guard::default();
        for ip in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:200::1",
            "2a00::1",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2002:101:101::1",
        ] {
            assert!(permits(&guard, ip), "{ip}");
        }
    }

    #[test]
    fn nothing_else_may_be() {
        let guard = Guard::default();
        for ip in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.255",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::1.1.1.1",
            "100::1",
            "2001::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "2002:a9fe:a9fe::1",
            "3fff::1",
            "4000::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!permits(&guard, ip), "{ip}");
        }
    }

    #[test]
    fn the_allow_list_opens_what_it_names_in_either_dress() {
        let guard = Guard::new(vec!["127.0.0.0/8".parse().unwrap(), "fd12::/16".parse().unwrap()]);
        for ip in ["127.0.0.1", "::ffff:127.0.0.1", "fd12::9"] {
            assert!(permits(&guard, ip), "{ip}");
        }
        for ip in ["10.0.0.1", "::1", "fd13::9", "64:ff9b::127.0.0.1", "2002:7f00:1::1"] {
            assert!(!permits(&guard, ip), "{ip}");
        }
    }
}

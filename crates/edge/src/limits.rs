use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::json::Bounds;

const BYTES_PER_JSON_VALUE: usize = 16;
const JSON_VALUES_MIN: usize = 4_096;

/// What one client may take: connections, bytes and time. There is no default here; the configuration
/// is the one place that states values.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections open at once. The next one is answered 503 and closed.
    pub connections_max: usize,
    /// Of them, how many percent one client address may have. Trusted proxies may have all: they speak for many.
    pub connections_per_client_percent: usize,
    /// From accept to the first byte.
    pub first_byte_timeout: Duration,
    /// From the first byte of a request to the end of its head, however slowly it trickles.
    pub header_timeout: Duration,
    /// From the start of reading a body to its end.
    pub body_timeout: Duration,
    /// Between a response and the next request on the same connection.
    pub idle_timeout: Duration,
    /// Without progress of a write that the client does not take.
    pub write_timeout: Duration,
    /// Request line and header fields together.
    pub header_bytes_max: usize,
    pub body_bytes_max: usize,
    /// Held of all request bodies that came in several pieces, from then until their requests are answered.
    pub bodies_bytes_max: usize,
    /// Of that, how many percent one client address may have; trusted proxies may have all.
    pub bodies_per_client_percent: usize,
    /// The outermost object is depth 1.
    pub json_depth_max: usize,
    /// From the start of the shutdown until the remaining connections are cut.
    pub drain_timeout: Duration,
}

impl Limits {
    pub(crate) fn connections_per_client_max(&self) -> usize {
        (self.connections_max.saturating_mul(self.connections_per_client_percent) / 100).max(1)
    }

    /// So many values that no request of ours comes near, even one of thousands of short messages, and so few that what
    /// is built of them stays within some times the body.
    pub(crate) fn json_bounds(&self) -> Bounds {
        let values_max = (self.body_bytes_max / BYTES_PER_JSON_VALUE).max(JSON_VALUES_MIN);
        Bounds { depth_max: self.json_depth_max, values_max }
    }

    /// What is read of one head. Above [`Self::header_bytes_max`], so that most heads that are too large are read to
    /// their end, and the connection can be used again after the answer.
    pub(crate) fn head_read_bytes_max(&self) -> usize {
        self.header_bytes_max.saturating_mul(2).max(64 * 1024)
    }
}

/// Whether only this machine can reach a listener on `addr`.
pub fn bind_is_loopback(addr: &SocketAddr) -> bool {
    match addr.ip() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_binds_count_as_loopback() {
        for (addr, loopback) in [
            ("127.0.0.1:1", true),
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("10.0.0.1:1", false),
            ("[::ffff:10.0.0.1]:1", false),
        ] {
            assert_eq!(bind_is_loopback(&addr.parse().unwrap()), loopback, "{addr}");
        }
    }
}

use tidegate_edge::{Cidr, GateOptions, HeaderStyle};

use super::reader::Reader;

const STYLES: [(&str, HeaderStyle); 3] =
    [("legacy", HeaderStyle::Legacy), ("draft-11", HeaderStyle::Draft11), ("off", HeaderStyle::Off)];

/// How policies see clients and clients see policies, and how many buckets are kept.
pub fn read(reader: &mut Reader<'_>) -> (GateOptions, usize) {
    let buckets_max = reader.size("limits.buckets_max", 1_000..=1_000_000_000);
    let prefix = reader.number("limits.ipv6_prefix", 1..=128);
    let gate = GateOptions {
        trusted_proxies: networks(reader, "server.trusted_proxies"),
        ipv6_prefix: u8::try_from(prefix).unwrap_or(128),
        headers: reader.one_of("limits.rate_limit_headers", &STYLES).unwrap_or(HeaderStyle::Legacy),
        prioritized: crate::http::priority::is_claimed_on,
    };
    (gate, buckets_max)
}

/// Networks, or single addresses.
pub fn networks(reader: &mut Reader<'_>, key: &str) -> Vec<Cidr> {
    let mut networks = Vec::new();
    for text in reader.texts(key) {
        match text.parse() {
            Ok(network) => networks.push(network),
            Err(what) => {
                let fix = "write networks such as \"10.0.0.0/8\" or single addresses";
                reader.problem_with_fix(key, what, fix);
            }
        }
    }
    networks
}

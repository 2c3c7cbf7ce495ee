use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const ID_BYTES_MAX: usize = 128;
const HEX: &[u8; 16] = b"0123456789abcdef";

/// The id of a request; in its extensions.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub HeaderValue);

/// Makes request ids: unguessable enough to tell processes apart, unique within this one, and without a
/// system call per request. They are labels, not secrets.
#[derive(Debug)]
pub(crate) struct RequestIds {
    seed: [u64; 2],
    next: AtomicU64,
}

impl RequestId {
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

impl RequestIds {
    pub fn new() -> Self {
        let mut seed = [[0; 8]; 2];
        if let Err(error) = getrandom::fill(seed.as_flattened_mut()) {
            // Still unique within the process: the counter alone sees to that.
            tracing::warn!(%error, "no randomness for request ids");
        }
        Self { seed: seed.map(u64::from_le_bytes), next: AtomicU64::new(0) }
    }

    /// The client's id when it is fit for a log line, else a new one.
    pub fn take_or_make(&self, headers: &HeaderMap) -> HeaderValue {
        match headers.get(&X_REQUEST_ID) {
            Some(value) if is_fit(value.as_bytes()) => value.clone(),
            _ => self.make(),
        }
    }

    pub fn make(&self) -> HeaderValue {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        let mut text = [0; 32];
        for (half, seed) in text.chunks_exact_mut(16).zip(self.seed) {
            // Mixing is a bijection, so different counts give different ids.
            let mixed = splitmix64(seed.wrapping_add(n)).to_be_bytes();
            for (digits, byte) in half.chunks_exact_mut(2).zip(mixed) {
                digits[0] = HEX[usize::from(byte >> 4)];
                digits[1] = HEX[usize::from(byte & 0xf)];
            }
        }
        HeaderValue::from_bytes(&text).unwrap_or_else(|_| HeaderValue::from_static("-"))
    }
}

/// Visible ASCII without quotes: nothing that could break out of a log field.
fn is_fit(id: &[u8]) -> bool {
    (1..=ID_BYTES_MAX).contains(&id.len())
        && id.iter().all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\'' | b'`' | b'\\'))
}

fn splitmix64(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn made_ids_differ() {
        let ids = RequestIds::new();
        let made: HashSet<_> = (0..10_000).map(|_| ids.make()).collect();
        assert_eq!(made.len(), 10_000);
        assert!(made.iter().all(|id| is_fit(id.as_bytes()) && id.len() == 32));
    }

    #[test]
    fn only_fit_ids_are_taken() {
        assert!(is_fit(b"a") && is_fit(b"3f-7:b_c.d") && is_fit(&[b'x'; 128]));
        assert!(
            !is_fit(b"")
                && !is_fit(&[b'x'; 129])
                && !is_fit(b"a b")
                && !is_fit(b"a\"b")
                && !is_fit(b"\xc3\xa4")
        );
    }
}

use super::chunks::Chunks;
use super::head::{self, Framing};
use crate::ApiError;

/// Empty lines before a request, as old clients send them after a body.
const BLANK_BYTES_MAX: usize = 8;

/// The requests of a connection, one after the other, as their bytes come: checks each head, and finds where its body ends
/// and the next head begins.
#[derive(Debug)]
pub(super) struct Requests {
    at: At,
    /// What is read of one head.
    head_bytes_max: usize,
    /// What a head may have, as callers are told.
    header_bytes_max: usize,
    /// Heads that were found to be valid.
    pub heads: u64,
}

#[derive(Debug)]
enum At {
    Head { blank: usize, scanned: usize },
    Body { left: u64 },
    Chunks(Chunks),
}

/// Why a connection's bytes end here.
#[derive(Debug)]
pub(super) enum Fault {
    /// To be answered.
    Head(ApiError),
    /// Within the body of a request, which its handler reads.
    Body,
}

impl Requests {
    pub fn new(head_bytes_max: usize, header_bytes_max: usize) -> Self {
        Self { at: At::START, head_bytes_max, header_bytes_max, heads: 0 }
    }

    /// How many of the bytes can be handed on. The rest is the beginning of a head; it has to come again, with more bytes
    /// behind it. After a fault nothing may come.
    pub fn advance(&mut self, bytes: &[u8]) -> (usize, Option<Fault>) {
        let mut passed = 0;
        while passed < bytes.len() {
            let rest = &bytes[passed..];
            match self.step(rest) {
                Ok(0) => break,
                Ok(count) => passed += count,
                Err(fault) => return (passed, Some(fault)),
            }
        }
        (passed, None)
    }

    /// Zero when the head is not complete.
    fn step(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        match &mut self.at {
            At::Head { blank, scanned: 0 } if bytes.starts_with(b"\r\n") && *blank < BLANK_BYTES_MAX => {
                *blank += 2;
                Ok(2)
            }
            // Half of an empty line.
            At::Head { scanned: 0, .. } if bytes == b"\r" => Ok(0),
            At::Head { .. } => self.head(bytes).map_err(Fault::Head),
            At::Body { left } => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= taken as u64;
                if *left == 0 {
                    self.at = At::START;
                }
                Ok(taken)
            }
            At::Chunks(chunks) => {
                let taken = chunks.advance(bytes).map_err(|_| Fault::Body)?;
                if *chunks == Chunks::End {
                    self.at = At::START;
                }
                Ok(taken)
            }
        }
    }

    fn head(&mut self, bytes: &[u8]) -> Result<usize, ApiError> {
        let At::Head { scanned, .. } = &mut self.at else { return Ok(0) };
        let Some(end) = head::end(bytes, *scanned)? else {
            if *scanned == 0 {
                head::check_beginning(bytes)?;
            }
            *scanned = bytes.len();
            return if bytes.len() < self.head_bytes_max {
                Ok(0)
            } else {
                Err(head::too_large(self.header_bytes_max))
            };
        };
        if end > self.head_bytes_max {
            return Err(head::too_large(self.header_bytes_max));
        }
        self.at = match head::check(&bytes[..end])? {
            Framing::Length(0) => At::START,
            Framing::Length(left) => At::Body { left },
            Framing::Chunked => At::Chunks(Chunks::START),
        };
        self.heads += 1;
        Ok(end)
    }
}

impl At {
    const START: Self = Self::Head { blank: 0, scanned: 0 };
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

    /// Feeds the bytes in pieces of so many; what was handed on, how many heads, and the fault.
    fn feed(bytes: &str, piece: usize) -> (String, u64, Option<Fault>) {
        let mut requests = Requests::new(200, 100);
        let (mut handed, mut held) = (Vec::new(), Vec::new());
        for piece in bytes.as_bytes().chunks(piece) {
            held.extend_from_slice(piece);
            let (count, fault) = requests.advance(&held);
            handed.extend(held.drain(..count));
            if fault.is_some() {
                return (String::from_utf8(handed).unwrap(), requests.heads, fault);
            }
        }
        (String::from_utf8(handed).unwrap(), requests.heads, None)
    }

    #[test]
    fn requests_are_told_apart_however_they_are_cut() {
        let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n\n\n\n\n\n";
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\n\n\n\r\n0\r\n\r\n";
        let all = [GET, post, GET, chunked, "\r\n", GET].concat();
        for piece in 1..all.len() {
            let (handed, heads, fault) = feed(&all, piece);
            assert!(fault.is_none() && heads == 5, "{piece}: {heads} {fault:?}");
            assert_eq!(handed, all);
        }
        assert_eq!(feed(&all[..all.len() - 1], 7).1, 4, "a head is handed on when it is whole");
    }

    #[test]
    fn what_comes_before_a_fault_is_handed_on() {
        for bad in [
            "GET / HTTP/1.1\nHost: a\r\n\r\n",
            "G\0T / HTTP/1.1\r\n\r\n",
            "GET / HTTP/3\r\n\r\n",
            "GET / HTTP/1.1\r\nA : b\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
            "GET / HTTP/1.1\r\nContent-Length: 5, 5\r\n\r\n",
            "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "\r\n\r\n\r\n\r\n\r\n\r\n",
            "\x16\x03\x01",
        ] {
            for piece in [1, 7, 1_000] {
                let (handed, heads, fault) = feed(&[GET, GET, bad].concat(), piece);
                assert!(matches!(fault, Some(Fault::Head(_))) && heads == 2, "{bad:?} {piece}: {fault:?}");
                assert_eq!(handed.trim_end(), [GET, GET].concat().trim_end());
            }
        }
        let (_, heads, fault) = feed(&format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(300)), 10);
        assert!(
            matches!(&fault, Some(Fault::Head(error)) if error.status() == 431 && error.message().contains(" 100 "))
                && heads == 0,
            "{fault:?}"
        );
        let (_, heads, fault) = feed("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\n", 10);
        assert!(matches!(fault, Some(Fault::Body)) && heads == 1, "{fault:?}");
    }
}

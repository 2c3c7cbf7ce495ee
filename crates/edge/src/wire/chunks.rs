/// Where a chunked body stands, byte by byte, to know where the next request begins.
///
/// hyper decodes the body; this only finds its end, by the same grammar. It is strict where hyper is: lines end in CRLF,
/// and a line break inside of an extension is none. So the two can't disagree about where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chunks {
    Size {
        digits: u32,
        bytes: u64,
    },
    Extension {
        bytes: u64,
    },
    SizeLf {
        bytes: u64,
    },
    Data {
        left: u64,
    },
    DataCr,
    DataLf,
    /// At the start of a line after the last chunk.
    Trailers,
    Trailer,
    TrailerLf,
    EndLf,
    End,
}

/// The coding is broken: nothing tells any more where the next request begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

const DIGITS_MAX: u32 = 15;

impl Chunks {
    pub const START: Self = Self::Size { digits: 0, bytes: 0 };

    /// How many of the bytes belong to the body. All of them, unless it ends among them.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        let mut at = 0;
        while at < bytes.len() && *self != Self::End {
            if let Self::Data { left } = self {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len() - at);
                at += taken;
                *left -= taken as u64;
                if *left == 0 {
                    *self = Self::DataCr;
                }
                continue;
            }
            *self = self.after(bytes[at])?;
            at += 1;
        }
        Ok(at)
    }

    fn after(self, byte: u8) -> Result<Self, Broken> {
        Ok(match (self, byte) {
            (Self::Size { digits, bytes }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F')
                if digits < DIGITS_MAX =>
            {
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                Self::Size { digits: digits + 1, bytes: bytes << 4 | u64::from(digit) }
            }
            (Self::Size { digits: 1.., bytes }, b';' | b' ' | b'\t') => Self::Extension { bytes },
            (Self::Size { digits: 1.., bytes } | Self::Extension { bytes }, b'\r') => Self::SizeLf { bytes },
            (Self::Extension { bytes }, byte) if byte != b'\n' => Self::Extension { bytes },
            (Self::SizeLf { bytes: 0 }, b'\n') | (Self::TrailerLf, b'\n') => Self::Trailers,
            (Self::SizeLf { bytes }, b'\n') => Self::Data { left: bytes },
            (Self::DataCr, b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => Self::START,
            (Self::Trailers, b'\r') => Self::EndLf,
            (Self::Trailer, b'\r') => Self::TrailerLf,
            (Self::Trailers | Self::Trailer, byte) if byte != b'\n' => Self::Trailer,
            (Self::EndLf, b'\n') => Self::End,
            _ => return Err(Broken),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In pieces of one byte, and at once: the same.
    fn end(body: &str) -> Result<Option<usize>, Broken> {
        let mut whole = Chunks::START;
        let at_once = whole.advance(body.as_bytes()).map(|at| (whole == Chunks::End).then_some(at));
        let mut pieces = Chunks::START;
        let mut end = 0;
        for byte in body.as_bytes() {
            match pieces.advance(&[*byte]) {
                Ok(taken) => end += taken,
                Err(broken) => {
                    assert_eq!(at_once, Err(broken), "{body:?}");
                    return at_once;
                }
            }
        }
        assert_eq!(at_once, Ok((pieces == Chunks::End).then_some(end)), "{body:?}");
        at_once
    }

    #[test]
    fn a_body_ends_where_its_coding_says() {
        for body in [
            "0\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
            "a;x=y\r\n0123456789\r\n00\r\nX: y\r\nZ: \r\n\r\n",
            "1 \r\n\n\r\n0\r\n\r\n",
        ] {
            assert_eq!(end(body), Ok(Some(body.len())), "{body:?}");
            assert_eq!(end(&format!("{body}GET / HTTP/1.1\r\n")), Ok(Some(body.len())), "{body:?}");
            assert_eq!(end(&body[..body.len() - 1]), Ok(None), "{body:?}");
        }
    }

    #[test]
    fn whatever_two_readers_could_read_differently_is_broken() {
        for body in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "0x5\r\n",
            "5\nhello",
            "5;a\nhello",
            "5\r\nhelloo",
            "5\r\nhello\n0",
            "5\r\r\n",
            "0\r\nX: y\n",
            "0\r\n\n",
            "0\r\n\r\r",
            "1000000000000000\r\n",
        ] {
            assert_eq!(end(body), Err(Broken), "{body:?}");
        }
    }
}

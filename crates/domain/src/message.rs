use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::Timestamp;

/// How urgent a message is. Lanes rank recipients against each other, never the messages of one recipient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Lane {
    High,
    #[default]
    Normal,
    Low,
}

impl Lane {
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    pub const fn index(self) -> usize {
        self as usize
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }
}

impl FromStr for Lane {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        Self::ALL
            .into_iter()
            .find(|lane| lane.as_str() == text)
            .ok_or(InvalidName("must be \"high\", \"normal\" or \"low\""))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidName(pub &'static str);

/// A message's public name: 128 bits laid out like a UUID of version 7, so that ids sort by admission.
///
/// It carries the ledger's sequence number, which is how a look-up finds its row without an index, and a
/// salt drawn once per ledger, so that ids of two ledgers differ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(u128);

const SEQ_BITS: u32 = 52;
const SALT_BITS: u32 = 22;

impl MessageId {
    pub const SEQ_MAX: u64 = (1 << SEQ_BITS) - 1;
    pub const SALT_MAX: u32 = (1 << SALT_BITS) - 1;

    /// `seq` and `salt` beyond their bits are cut off; a ledger refuses to reach `SEQ_MAX`.
    pub fn new(at: Timestamp, seq: u64, salt: u32) -> Self {
        let ms = u128::from(at.millis().unsigned_abs() & ((1 << 48) - 1));
        let seq = u128::from(seq & Self::SEQ_MAX);
        let salt = u128::from(salt & Self::SALT_MAX);
        let (seq_high, seq_low) = (seq >> 40, seq & ((1 << 40) - 1));
        Self(ms << 80 | 7 << 76 | seq_high << 64 | 0b10 << 62 | seq_low << SALT_BITS | salt)
    }

    #[expect(clippy::cast_possible_truncation, reason = "52 bits")]
    pub fn seq(self) -> u64 {
        let high = (self.0 >> 64) & 0xfff;
        let low = (self.0 >> SALT_BITS) & ((1 << 40) - 1);
        (high << 40 | low) as u64
    }

    /// When it was admitted, in milliseconds since the epoch: what fits into 48 bits.
    pub fn millis(self) -> u64 {
        (self.0 >> 80) as u64
    }

    #[expect(clippy::cast_possible_truncation, reason = "cut to the salt's bits")]
    pub fn salt(self) -> u32 {
        self.0 as u32 & Self::SALT_MAX
    }
}

impl fmt::Display for MessageId {
    #[expect(clippy::cast_possible_truncation, reason = "cut into the groups of a UUID")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let b = self.0;
        let (a, c) = ((b >> 96) as u32, (b >> 80) as u16);
        let (d, e, g) = ((b >> 64) as u16, (b >> 48) as u16, b & 0xffff_ffff_ffff);
        write!(f, "{a:08x}-{c:04x}-{d:04x}-{e:04x}-{g:012x}")
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for MessageId {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        const WRONG: InvalidName =
            InvalidName("must be a message id such as 01981c5e-8a00-7000-8000-00000040d2f1");
        let bytes = text.as_bytes();
        if bytes.len() != 36 {
            return Err(WRONG);
        }
        let mut value = 0u128;
        for (at, byte) in bytes.iter().enumerate() {
            if matches!(at, 8 | 13 | 18 | 23) {
                if *byte != b'-' {
                    return Err(WRONG);
                }
                continue;
            }
            let digit = char::from(*byte).to_digit(16).ok_or(WRONG)?;
            value = value << 4 | u128::from(digit);
        }
        Ok(Self(value))
    }
}

/// Whose quota is charged. `1001` and `"1001"` in a request are one user.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(Arc<str>);

/// The ordering key: messages of one recipient in one queue go out in admission order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Recipient(Arc<str>);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName(Arc<str>);

/// Who reserves a slot: the caller's own name for an event, and what makes a reservation idempotent.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(Arc<str>);

/// A configuration of slots, through all its versions.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotConfigName(Arc<str>);

impl EventId {
    pub const BYTES_MAX: usize = 255;

    pub fn new(text: &str) -> Result<Self, InvalidName> {
        check_text(text, Self::BYTES_MAX, "must be 1 to 255 bytes without control characters")?;
        Ok(Self(text.into()))
    }
}

impl UserId {
    pub const BYTES_MAX: usize = 128;

    pub fn new(text: &str) -> Result<Self, InvalidName> {
        check_text(text, Self::BYTES_MAX, "must be 1 to 128 bytes without control characters")?;
        Ok(Self(text.into()))
    }

    /// The user as the ordering key of their own messages.
    pub fn as_recipient(&self) -> Recipient {
        Recipient(self.0.clone())
    }
}

impl Recipient {
    pub const BYTES_MAX: usize = 256;

    pub fn new(text: &str) -> Result<Self, InvalidName> {
        check_text(text, Self::BYTES_MAX, "must be 1 to 256 bytes without control characters")?;
        Ok(Self(text.into()))
    }
}

impl QueueName {
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        check_plain(text)?;
        Ok(Self(text.into()))
    }
}

impl SlotConfigName {
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        check_plain(text)?;
        Ok(Self(text.into()))
    }
}

/// For names that people type: they stand in paths, metrics and files.
fn check_plain(text: &str) -> Result<(), InvalidName> {
    const WRONG: &str = "must be 1 to 64 letters, digits, '.', '_' or '-'";
    check_text(text, 64, WRONG)?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if text.chars().all(allowed) { Ok(()) } else { Err(InvalidName(WRONG)) }
}

fn check_text(text: &str, bytes_max: usize, wrong: &'static str) -> Result<(), InvalidName> {
    let fits = !text.is_empty() && text.len() <= bytes_max && !text.chars().any(char::is_control);
    if fits { Ok(()) } else { Err(InvalidName(wrong)) }
}

macro_rules! text_name {
    ($($name:ident),+) => {$(
        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    )+};
}

text_name!(UserId, Recipient, QueueName, EventId, SlotConfigName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_carry_their_sequence_and_sort_by_admission() {
        let at = Timestamp::from_millis(1_763_244_000_000);
        let ids: Vec<_> = [1, 2, 1 << 40, MessageId::SEQ_MAX].map(|seq| MessageId::new(at, seq, 77)).into();
        assert!(ids.is_sorted());
        assert_eq!(ids.iter().map(|id| id.seq()).collect::<Vec<_>>(), [1, 2, 1 << 40, MessageId::SEQ_MAX]);
        assert!(ids[3] < MessageId::new(at.plus_ms(1), 5, 0));
        assert_eq!((ids[0].millis(), ids[0].salt()), (1_763_244_000_000, 77));
    }

    #[test]
    fn ids_look_like_uuid_v7_and_survive_their_text_form() {
        let id = MessageId::new(Timestamp::from_millis(1_763_244_000_000), 42, MessageId::SALT_MAX);
        let text = id.to_string();
        assert_eq!(text.parse(), Ok(id));
        assert_eq!((&text[14..15], text.len()), ("7", 36));
        assert!("89ab".contains(&text[19..20]), "{text}");
        for wrong in ["", "x", "01981c5e08a00-7000-8000-00000040d2f1", "01981c5e-8a00-7000-8000-00000040d2fg"]
        {
            assert!(wrong.parse::<MessageId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_refuse_what_would_break_a_log_line_or_a_key() {
        assert!(UserId::new("1001").is_ok());
        assert!(UserId::new("").is_err());
        assert!(UserId::new("a\nb").is_err());
        assert!(UserId::new(&"x".repeat(129)).is_err());
        assert!(QueueName::new("sms-outbound.high").is_ok());
        assert!(QueueName::new("sms/outbound").is_err());
    }
}

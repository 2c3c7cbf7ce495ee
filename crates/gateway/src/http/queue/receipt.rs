use std::fmt;
use std::str::FromStr;

use tidegate_domain::{Claim, MessageId, QueueName, Timestamp};

/// Proof of a lease, handed to a consumer with its message. It needs no signature: the ledger compares the token,
/// and whoever forges the rest harms his own attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    pub id: MessageId,
    pub token: u64,
    pub leased_at: Timestamp,
    /// Failed attempts before this one, and how many there may be.
    pub failures: u32,
    pub attempts_max: u32,
    pub queue: QueueName,
}

impl Receipt {
    pub fn of(claim: &Claim, lease_ms: u64, attempts_max: u32) -> Self {
        let leased_at = claim.lease_until.minus_ms(lease_ms);
        let (id, token, failures, queue) = (claim.id, claim.token, claim.failures, claim.queue.clone());
        Self { id, token, leased_at, failures, attempts_max, queue }
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, token, leased_at, failures, attempts_max, queue } = self;
        write!(f, "{id}.{token:x}.{:x}.{failures:x}.{attempts_max:x}.{queue}", leased_at.millis())
    }
}

impl FromStr for Receipt {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        const WRONG: &str = "must be the receipt of a popped message";
        // The name of a queue may hold dots, and is the last.
        let parts: Vec<&str> = text.splitn(6, '.').collect();
        let [id, token, leased_at, failures, attempts_max, queue] = parts[..] else { return Err(WRONG) };
        let number = |text: &str| u64::from_str_radix(text, 16).map_err(|_| WRONG);
        let small = |text: &str| u32::from_str_radix(text, 16).map_err(|_| WRONG);
        Ok(Self {
            id: id.parse().map_err(|_| WRONG)?,
            token: number(token)?,
            leased_at: Timestamp::from_millis(i64::from_str_radix(leased_at, 16).map_err(|_| WRONG)?),
            failures: small(failures)?,
            attempts_max: small(attempts_max)?,
            queue: QueueName::new(queue).map_err(|_| WRONG)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_survives_its_text_and_anything_else_is_refused() {
        let leased_at = Timestamp::from_millis(1_763_244_000_000);
        let id = MessageId::new(leased_at, 42, 7);
        let queue = QueueName::new("jobs.paint").unwrap();
        let receipt = Receipt { id, token: u64::MAX, leased_at, failures: 3, attempts_max: 5, queue };
        assert_eq!(receipt.to_string().parse(), Ok(receipt.clone()));
        let text = receipt.to_string();
        for wrong in ["", "x", &text[1..], &format!("{text}/"), &text.replace('.', ":"), &id.to_string()] {
            assert!(wrong.parse::<Receipt>().is_err(), "{wrong}");
        }
    }
}

/// When a failed attempt is tried again, and when it is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    pub attempts_max: u32,
    pub base_ms: u64,
    pub max_ms: u64,
    /// How long an accepted message waits for its recipient's ack.
    pub ack_within_ms: u64,
}

impl RetryPolicy {
    /// `min(base × 2^retries, max)`, or what the provider asked for when that is longer.
    pub fn delay_ms(&self, retries: u32, asked_ms: Option<u64>) -> u64 {
        let factor = 1u64.checked_shl(retries).unwrap_or(u64::MAX);
        let own = self.base_ms.saturating_mul(factor).min(self.max_ms);
        own.max(asked_ms.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum() {
        let policy = RetryPolicy { attempts_max: 5, base_ms: 1_000, max_ms: 30_000, ack_within_ms: 300_000 };
        let delays: Vec<_> = (0..7).map(|n| policy.delay_ms(n, None)).collect();
        assert_eq!(delays, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
        assert_eq!(policy.delay_ms(200, None), 30_000);
    }

    #[test]
    fn a_provider_may_ask_for_more_time_but_not_for_less() {
        let policy = RetryPolicy { attempts_max: 5, base_ms: 1_000, max_ms: 30_000, ack_within_ms: 300_000 };
        assert_eq!(policy.delay_ms(0, Some(90_000)), 90_000);
        assert_eq!(policy.delay_ms(3, Some(1)), 8_000);
    }
}

use crate::{Delivery, Outcome, RetryPolicy, counted};

/// How long a message waits whose attempt could not begin.
pub const NOT_TRIED_MS: u64 = 500;

/// What a delivery means for its message: the settlement that a sender writes.
///
/// `failures` are those before the attempt that just ended.
pub fn outcome_of(delivery: Delivery, failures: u32, policy: &RetryPolicy) -> Outcome {
    let attempts = failures.saturating_add(1);
    match delivery {
        Delivery::Delivered => Outcome::Delivered,
        Delivery::Accepted => Outcome::Accepted { ack_within_ms: policy.ack_within_ms },
        Delivery::NotTried { .. } => Outcome::Held { for_ms: NOT_TRIED_MS },
        Delivery::Refused { reason } => Outcome::Dead { reason },
        Delivery::TryLater { reason, .. } if attempts >= policy.attempts_max => {
            Outcome::Dead { reason: format!("gave up after {}: {reason}", counted(attempts, "attempt")) }
        }
        Delivery::TryLater { after_ms, reason } => {
            Outcome::Retry { delay_ms: policy.delay_ms(failures, after_ms), reason }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RetryPolicy =
        RetryPolicy { attempts_max: 3, base_ms: 100, max_ms: 1_000, ack_within_ms: 300_000 };

    fn later() -> Delivery {
        Delivery::TryLater { after_ms: None, reason: "busy".into() }
    }

    #[test]
    fn attempts_run_out_into_a_dead_letter() {
        assert_eq!(outcome_of(later(), 0, &POLICY), Outcome::Retry { delay_ms: 100, reason: "busy".into() });
        assert_eq!(outcome_of(later(), 1, &POLICY), Outcome::Retry { delay_ms: 200, reason: "busy".into() });
        let dead = outcome_of(later(), 2, &POLICY);
        assert_eq!(dead, Outcome::Dead { reason: "gave up after 3 attempts: busy".into() });
    }

    #[test]
    fn an_attempt_that_never_began_is_not_the_last_one() {
        let not_tried = Delivery::NotTried { reason: "no file".into() };
        assert_eq!(outcome_of(not_tried, 2, &POLICY), Outcome::Held { for_ms: NOT_TRIED_MS });
    }

    #[test]
    fn a_refusal_is_final_at_once() {
        let refused = Delivery::Refused { reason: "no such number".into() };
        assert_eq!(outcome_of(refused, 0, &POLICY), Outcome::Dead { reason: "no such number".into() });
    }
}

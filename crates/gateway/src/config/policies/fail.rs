use tidegate_domain::limits::{BucketRule, FailStrategy};
use toml::Value;

use super::Reading;

/// Right for two gateways; the reference says how to choose it.
const SHARE: f64 = 0.5;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Kind {
    #[default]
    Open,
    Closed,
    FallBack,
}

const KINDS: [(&str, Kind); 3] =
    [("FAIL_OPEN", Kind::Open), ("FAIL_CLOSED", Kind::Closed), ("FALL_BACK", Kind::FallBack)];

impl Reading<'_> {
    /// For a policy with this refill and rule, as far as they could be read.
    pub(super) fn fail(&mut self, rule: Option<(f64, BucketRule)>) -> Option<FailStrategy> {
        let kind = self.choice("failStrategy", &KINDS);
        let share = self.share();
        let kind = kind?;
        if kind != Kind::FallBack && self.entry("fallBackShare").is_some() {
            let fix = "remove it, or change the strategy";
            self.problem("fallBackShare", "goes with failStrategy = \"FALL_BACK\"", fix);
        }
        match kind {
            Kind::Open => Some(FailStrategy::Open),
            Kind::Closed => Some(FailStrategy::Closed),
            Kind::FallBack => {
                let ((refill, rule), share) = (rule?, share?);
                self.local_rule(refill, &rule, share).map(FailStrategy::FallBack)
            }
        }
    }

    /// A share of capacity and rate. One that leaves less than a request is refused, not rounded up: together the
    /// gateways would admit more than the policy says.
    fn local_rule(&mut self, refill: f64, rule: &BucketRule, share: f64) -> Option<BucketRule> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the capacity")]
        let capacity = (f64::from(rule.capacity()) * share) as u32;
        if capacity < rule.cost() {
            let (all, cost) = (rule.capacity(), rule.cost());
            let wrong = format!("leaves {capacity} tokens of {all}, and a request costs {cost}");
            self.problem("fallBackShare", &wrong, "raise it, or choose FAIL_OPEN or FAIL_CLOSED");
            return None;
        }
        let local = BucketRule::new(capacity, refill * share, rule.cost(), rule.shadow());
        if let Err(bad) = &local {
            self.problem("fallBackShare", &format!("too little is left of the policy: {bad}"), "raise it");
        }
        local.ok()
    }

    fn share(&mut self) -> Option<f64> {
        let Some(entry) = self.entry("fallBackShare") else { return Some(SHARE) };
        let share = match &entry.value {
            Value::Float(share) => Some(*share),
            Value::Integer(1) => Some(1.0),
            _ => None,
        };
        let share = share.filter(|share| *share > 0.0 && *share <= 1.0);
        if share.is_none() {
            let fix = "such as 0.5: one divided by the number of gateways";
            self.problem("fallBackShare", "must be a number above 0 and up to 1", fix);
        }
        share
    }
}

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_domain::{Claim, Lane, PickUp, Timestamp};

use super::POLL;
use super::rules::Rules;

static ASKED: AtomicU64 = AtomicU64::new(1);

/// The naive hint: something may have changed, every time.
pub(super) async fn stirred(wait_ms: u64) -> u64 {
    tokio::time::sleep(Duration::from_millis(wait_ms).min(POLL)).await;
    ASKED.fetch_add(1, Ordering::Relaxed)
}

impl Rules {
    pub(super) fn pick_up(&mut self, request: &PickUp, bytes_max: usize, now: Timestamp) -> Vec<Claim> {
        if self.paused.contains(&request.queue) {
            return Vec::new();
        }
        let is_asked_for = |place: &usize| {
            let row = &self.rows[*place];
            let record = &row.record;
            row.strict
                && record.queue == request.queue
                && record.recipient.as_ref().is_some_and(|recipient| request.recipients.contains(recipient))
                && self.is_claimable(*place, now)
        };
        let mut found: Vec<(Lane, Timestamp, usize)> = (0..self.rows.len())
            .filter(is_asked_for)
            .map(|place| (self.lane_of_chain(place), self.rows[place].claimable_at(), place))
            .collect();
        found.sort();
        let (mut claims, mut bytes) = (Vec::new(), 0);
        for (_, _, place) in found.into_iter().take(request.max) {
            bytes += self.rows[place].record.body.len();
            if bytes > bytes_max && !claims.is_empty() {
                break;
            }
            claims.push(self.lease_row(place, request.lease_ms, false, now));
        }
        claims
    }
}

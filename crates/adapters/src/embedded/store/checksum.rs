//! SQLite does not notice a flipped bit inside a row. These do.

use crc32fast::Hasher;
use tidegate_domain::{Idempotency, Timestamp};

use super::super::rows::{AttemptRow, MessageRow, OutcomeRow, QuotaRow, SlotRow, Totals};
use super::super::slots::Held;
use super::head::Head;
use super::progress::Reached;
use super::schema::{result_code, status_code};

/// The head's checksum in the upper half, the body's in the lower: a start reads heads only.
pub(in crate::embedded) fn of_message(message: &MessageRow) -> i64 {
    i64::from(of_head(message)) << 32 | i64::from(of_body(&message.body))
}

/// Of a message whose text was erased.
pub(in crate::embedded) fn of_head_alone(message: &MessageRow) -> i64 {
    i64::from(of_head(message)) << 32
}

pub(in crate::embedded) fn head_matches(message: &MessageRow, checksum: i64) -> bool {
    (checksum >> 32) & 0xffff_ffff == i64::from(of_head(message))
}

pub(in crate::embedded) fn body_matches(body: &[u8], checksum: i64) -> bool {
    checksum & 0xffff_ffff == i64::from(of_body(body))
}

pub(in crate::embedded) fn of_body(body: &[u8]) -> u32 {
    crc32fast::hash(body)
}

fn of_head(message: &MessageRow) -> u32 {
    let mut sum = Sum::new();
    sum.number(message.seq.cast_signed()).number(message.at.millis()).number(message.due.millis());
    sum.number(i64::from(message.queue) << 8 | message.lane.index() as i64);
    sum.text(message.recipient.as_ref().map(|recipient| recipient.as_str()));
    sum.number(message.expires.map_or(i64::MIN, Timestamp::millis)).number(i64::from(message.ack_required));
    for (name, value) in &message.headers.0 {
        sum.text(Some(name)).text(Some(value));
    }
    if let Some(charge) = &message.charge {
        sum.text(Some(charge.user.as_str())).number(i64::from(charge.count)).number(charge.since.millis());
    }
    sum.finish()
}

pub(in crate::embedded) fn of_outcome(outcome: &OutcomeRow) -> i64 {
    let OutcomeRow { seq, status, at, attempt, latency_ms, reason } = outcome;
    let mut sum = Sum::new();
    sum.number(seq.cast_signed()).number(status_code(*status)).number(at.millis());
    sum.number(i64::from(*attempt)).number(latency_ms.cast_signed());
    i64::from(sum.text(reason.as_deref()).finish())
}

pub(in crate::embedded) fn of_attempt(attempt: &AttemptRow) -> i64 {
    let AttemptRow { seq, number, at, latency_ms, reason, due, result, order } = attempt;
    let mut sum = Sum::new();
    sum.number(seq.cast_signed()).number(i64::from(*number)).number(at.millis());
    sum.number(latency_ms.cast_signed()).number(due.millis());
    sum.number(result_code(*result)).number(order.cast_signed());
    i64::from(sum.text(reason.as_deref()).finish())
}

pub(in crate::embedded) fn of_quota(row: &QuotaRow) -> i64 {
    let mut sum = Sum::new();
    sum.text(Some(row.user.as_str())).number(row.seq.cast_signed());
    let quota = &row.account.quota;
    sum.number(i64::from(quota.limit)).number(quota.window_ms.cast_signed());
    sum.number(i64::from(quota.count)).number(quota.since.millis()).number(i64::from(quota.exempts_high));
    for (begins, count) in row.account.deferrals.dues() {
        sum.number(begins.millis()).number(i64::from(count));
    }
    i64::from(sum.finish())
}

pub(in crate::embedded) fn of_head_row(head: &Head) -> i64 {
    let Totals { admitted, delivered, dead, expired, deleted } = head.totals;
    let Reached { ledger, commits, at, seq_last } = head.reached;
    let mut sum = Sum::new();
    for number in [admitted, delivered, dead, expired, deleted, ledger, commits, seq_last] {
        sum.number(number.cast_signed());
    }
    i64::from(sum.number(at.millis()).finish())
}

pub(in crate::embedded) fn of_key(seq: u64, at: Timestamp, idempotency: &Idempotency) -> i64 {
    let mut sum = Sum::new();
    sum.number(seq.cast_signed()).number(at.millis());
    i64::from(sum.bytes(&idempotency.key.0).bytes(&idempotency.fingerprint.0).finish())
}

/// Of a row of a small table: its numbers, then its texts.
pub(in crate::embedded) fn of_columns(numbers: &[i64], texts: &[Option<&str>]) -> i64 {
    let mut sum = Sum::new();
    for number in numbers {
        sum.number(*number);
    }
    for text in texts {
        sum.text(*text);
    }
    i64::from(sum.finish())
}

pub(in crate::embedded) fn of_slot(row: &SlotRow) -> i64 {
    let Held { seq, window, requested, scheduled, created, message, version, config } = row.held;
    let mut sum = Sum::new();
    sum.number(seq.cast_signed()).number(window).number(requested.millis()).number(scheduled.millis());
    sum.number(created.millis())
        .number(message.cast_signed())
        .number(i64::from(config))
        .number(i64::from(version));
    i64::from(sum.text(Some(row.event.as_str())).finish())
}

/// Short values are gathered, because a checksum over many bytes at once is several times as fast.
struct Sum {
    hasher: Hasher,
    gathered: [u8; 128],
    length: usize,
}

impl Sum {
    fn new() -> Self {
        Self { hasher: Hasher::new(), gathered: [0; 128], length: 0 }
    }

    fn number(&mut self, number: i64) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    fn text(&mut self, text: Option<&str>) -> &mut Self {
        let text = text.unwrap_or("\0");
        self.number(text.len().cast_signed() as i64);
        self.bytes(text.as_bytes())
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        if bytes.len() > self.gathered.len() - self.length {
            self.flush();
        }
        match self.gathered.get_mut(self.length..self.length + bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.length += bytes.len();
            }
            None => self.hasher.update(bytes),
        }
        self
    }

    fn flush(&mut self) {
        self.hasher.update(&self.gathered[..self.length]);
        self.length = 0;
    }

    fn finish(&mut self) -> u32 {
        self.flush();
        std::mem::take(&mut self.hasher).finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gathered_or_not_the_sum_is_the_same() {
        for length in [0, 1, 40, 120, 127, 128, 129, 500] {
            let text = "x".repeat(length);
            let (mut sum, mut plain) = (Sum::new(), Vec::new());
            for number in 0..20 {
                sum.number(number).text(Some(&text)).number(-number);
                plain.extend_from_slice(&number.to_le_bytes());
                plain.extend_from_slice(&i64::try_from(length).unwrap().to_le_bytes());
                plain.extend_from_slice(text.as_bytes());
                plain.extend_from_slice(&(-number).to_le_bytes());
            }
            assert_eq!(sum.finish(), crc32fast::hash(&plain), "texts of {length} bytes");
        }
    }
}

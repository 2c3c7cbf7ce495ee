use crate::counted;

/// Bytes that a ledger keeps of a reason. A list shows two of them for each message.
pub const REASON_BYTES_MAX: usize = 1_024;

const ELLIPSIS: char = '\u{2026}';

/// The beginning of a reason that is too long: that is where a provider's answer has its status.
pub fn cut_reason(mut reason: String) -> String {
    if reason.len() > REASON_BYTES_MAX {
        reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX - ELLIPSIS.len_utf8()));
        reason.push(ELLIPSIS);
        // A provider may have sent much more than is kept.
        reason.shrink_to_fit();
    }
    reason
}

/// Why a message is dead whose last lease ended unsettled.
pub fn lapsed_reason(attempts: u32) -> String {
    format!("gave up after {}: the last lease ended unsettled", counted(attempts, "attempt"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_between_characters() {
        assert_eq!(cut_reason("busy".to_owned()), "busy");
        let fits = "x".repeat(REASON_BYTES_MAX);
        assert_eq!(cut_reason(fits.clone()), fits);
        for character in ["x", "\u{e9}", "\u{1F30A}"] {
            let cut = cut_reason(character.repeat(REASON_BYTES_MAX + 1));
            assert!((REASON_BYTES_MAX - 3..=REASON_BYTES_MAX).contains(&cut.len()), "{}", cut.len());
            assert!(cut.ends_with(ELLIPSIS));
        }
    }
}

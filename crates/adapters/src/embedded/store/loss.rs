//! What a ledger had, and has no longer.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use tidegate_domain::Timestamp;

use super::progress::Reached;

/// What is missing, as far as the files tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// What was found: a file that is not there, a frame that is damaged.
    pub finding: String,
    /// How far the ledger got, by what is left of it.
    pub(in crate::embedded) found: Option<Reached>,
    /// How far it had got.
    pub(in crate::embedded) known: Option<Reached>,
    /// Damaged rows that were removed, each with what that means.
    pub removed: Vec<String>,
}

impl Loss {
    pub(super) fn new(finding: impl Into<String>) -> Self {
        Self { finding: finding.into(), found: None, known: None, removed: Vec::new() }
    }

    pub(super) fn found(self, found: Reached) -> Self {
        Self { found: Some(found), ..self }
    }

    pub(super) fn known(self, known: Reached) -> Self {
        Self { known: Some(known), ..self }
    }

    /// The commits that are missing, first and last; none when that can't be told.
    pub fn commits(&self) -> Option<(u64, u64)> {
        range(self.found?.commits, self.known?.commits)
    }

    /// The sequence numbers that were given out by them.
    pub fn seqs(&self) -> Option<(u64, u64)> {
        range(self.found?.seq_last, self.known?.seq_last)
    }
}

fn range(found: u64, known: u64) -> Option<(u64, u64)> {
    (found < known).then_some((found + 1, known))
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.finding)?;
        match (self.found, self.known, self.commits()) {
            (Some(found), Some(known), Some((first, last))) => {
                write!(f, ". Missing: commits {first} to {last}")?;
                if found.commits > 0 {
                    write!(f, ", made after {}", time(found.at))?;
                }
                write!(f, " and until {}; ", time(known.at))?;
                match self.seqs() {
                    Some((first, last)) => write!(f, "they gave out the sequence numbers {first} to {last}"),
                    None => f.write_str("they gave out no sequence numbers"),
                }
            }
            (_, Some(known), _) => write!(
                f,
                ". What is missing can't be told before it is opened; it had got to commit {}, sequence number {}, {}",
                known.commits,
                known.seq_last,
                time(known.at)
            ),
            _ if self.removed.is_empty() => f.write_str(". Whether anything else is missing can't be told"),
            _ => Ok(()),
        }?;
        self.removed.iter().try_for_each(|row| write!(f, ". {row}"))
    }
}

pub(super) fn time(at: Timestamp) -> String {
    let since_1970 = Duration::from_millis(at.millis().try_into().unwrap_or(0));
    httpdate::fmt_http_date(UNIX_EPOCH + since_1970)
}

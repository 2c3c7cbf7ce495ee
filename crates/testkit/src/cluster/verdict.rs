use std::fmt;

use anyhow::ensure;
use serde_json::Value;

use super::Notes;
use crate::journal::{ProviderJournal, TriedJournal};
use crate::judge::{Verdict, judge};

/// What the names of contended users begin with.
pub const CONTENDED: &str = "c";

/// What became of everything that clients were told and the provider was handed.
#[derive(Debug)]
pub struct ClusterVerdict {
    pub ordered: Verdict,
    pub contended: Verdict,
    /// Deliveries beyond the first of a message.
    pub repeated: usize,
    pub repeats_max: usize,
    /// Of pulled queues, slots and books, and answers that nobody should have got.
    pub faults: Vec<String>,
}

impl ClusterVerdict {
    /// `repeats_max`: deliveries that faults excuse.
    pub fn new(notes: &Notes, provider: &TriedJournal, totals: &Value, repeats_max: usize) -> Self {
        let handed = |contended: bool| {
            let mut journal = ProviderJournal::default();
            for tried in provider.attempts.iter().filter(|tried| tried.answer.says_yes()) {
                let user = tried.message.split('#').next().unwrap_or_default();
                if user.starts_with(CONTENDED) == contended {
                    journal.note(tried.id, Some(user), &tried.message);
                }
            }
            journal
        };
        let limits = |contended: bool| {
            let limits = notes.limits.iter().filter(|(user, _)| user.starts_with(CONTENDED) == contended);
            limits.map(|(user, limit)| (user.clone(), *limit)).collect()
        };
        let ordered = judge(&notes.ordered, &handed(false), &limits(false));
        let mut contended = judge(&notes.contended, &handed(true), &limits(true));
        // Several clients at once have no order among them.
        contended.out_of_order = 0;
        contended.examples.remove("out of order");
        let mut faults: Vec<String> = notes.strange.iter().take(5).cloned().collect();
        faults.extend(notes.pulls.faults());
        faults.extend(notes.slots.faults());
        if provider.nonsense > 0 {
            faults.push(format!("{} requests to the provider made no sense", provider.nonsense));
        }
        let acknowledged = ordered.acknowledged + contended.acknowledged + notes.pulls.pushed.len();
        faults.extend(books(totals, acknowledged));
        let repeated = ordered.duplicated + contended.duplicated;
        Self { ordered, contended, repeated, repeats_max, faults }
    }

    pub fn check(&self) -> anyhow::Result<()> {
        let sound = self.ordered.is_clean() && self.contended.is_clean() && self.faults.is_empty();
        ensure!(sound, "{self}");
        ensure!(self.repeated <= self.repeats_max, "repeated without an excuse\n{self}");
        let worth_it = self.ordered.delivered > 50 && self.contended.delivered > 20;
        ensure!(worth_it && self.ordered.unknown + self.contended.unknown == 0, "it proves little\n{self}");
        Ok(())
    }
}

fn books(totals: &Value, acknowledged: usize) -> Option<String> {
    let right = totals["balanced"] == true
        && totals["admitted"] == acknowledged
        && totals["delivered"] == acknowledged
        && totals["pending"] == 0;
    (!right).then(|| format!("clients know of {acknowledged} messages, and the books say {totals}"))
}

impl fmt::Display for ClusterVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ordered, contended, repeated, repeats_max, faults } = self;
        writeln!(f, "one client per user: {ordered}\nseveral clients per user: {contended}")?;
        write!(f, "{repeated} repeated, {repeats_max} may be")?;
        faults.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}

//! Set arithmetic over the client's and the provider's journals. Nothing here asks the product anything.

mod attempts;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use tidegate_domain::MessageId;

pub use self::attempts::{AttemptVerdict, Budget, judge_attempts};
use crate::journal::{ClientJournal, Outcome, ProviderJournal};

/// How many messages went wrong in which way. Examples of each kind are kept for whoever has to look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    pub asked: usize,
    pub acknowledged: usize,
    pub delivered: usize,
    /// Acknowledged and never handed to the provider.
    pub lost: usize,
    /// Handed to the provider though nobody asked for it, or though it was refused, or under an id or a user that
    /// is not the acknowledged one.
    pub phantom: usize,
    /// Handed over again. Allowed for what was in flight at a crash.
    pub duplicated: usize,
    /// First handed over after a message of the same user that was sent later.
    pub out_of_order: usize,
    /// Admitted beyond a user's limit.
    pub over_quota: usize,
    /// Users refused although fewer than their limit were admitted: charged for nothing.
    pub short_changed: usize,
    /// Keys that stand for more than one message.
    pub split_keys: usize,
    /// Never answered, whatever became of them.
    pub unknown: usize,
    pub examples: BTreeMap<&'static str, String>,
}

/// What the client knows of one message, all tries together.
#[derive(Debug)]
struct Asked<'a> {
    user: &'a str,
    ids: BTreeSet<MessageId>,
    refused: bool,
    unknown: bool,
    deliveries: usize,
    handed_ids: BTreeSet<MessageId>,
}

/// `limits` holds for each user named in it over the whole of both journals: choose windows that don't end.
pub fn judge(client: &ClientJournal, provider: &ProviderJournal, limits: &BTreeMap<String, u32>) -> Verdict {
    let mut verdict = Verdict::default();
    let mut asked: Vec<Asked<'_>> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for entry in &client.tries {
        let place = *places.entry(&entry.message).or_insert(asked.len());
        if place == asked.len() {
            asked.push(Asked::new(&entry.user));
        }
        asked[place].tried(entry.outcome);
    }

    let mut latest: HashMap<&str, usize> = HashMap::new();
    for handed in &provider.deliveries {
        let Some(&place) = places.get(&*handed.message) else {
            verdict.phantom(&handed.message, "nobody asked for it");
            continue;
        };
        let message = &mut asked[place];
        if handed.user.as_deref() != Some(message.user) {
            verdict.phantom(&handed.message, "handed over for another user");
        }
        if message.deliveries == 0 {
            let latest = latest.entry(message.user).or_insert(place);
            if *latest > place {
                verdict.out_of_order += 1;
                verdict.example("out of order", &handed.message);
            }
            *latest = place.max(*latest);
        }
        message.deliveries += 1;
        message.handed_ids.insert(handed.id);
    }

    let mut by_user: BTreeMap<&str, (usize, bool)> = BTreeMap::new();
    for (text, place) in places {
        let message = &asked[place];
        verdict.weigh(text, message);
        let (admitted, refused) = by_user.entry(message.user).or_default();
        *admitted += usize::from(!message.ids.is_empty() || message.deliveries > 0);
        *refused |= message.refused;
    }
    for (user, limit) in limits {
        let (admitted, refused) = by_user.get(user.as_str()).copied().unwrap_or_default();
        let limit = *limit as usize;
        if admitted > limit {
            verdict.over_quota += admitted - limit;
            verdict.example("over quota", &format!("{user}: {admitted} of {limit}"));
        }
        if refused && admitted < limit {
            verdict.short_changed += 1;
            verdict.example("short-changed", &format!("{user}: refused at {admitted} of {limit}"));
        }
    }
    verdict
}

impl<'a> Asked<'a> {
    fn new(user: &'a str) -> Self {
        let (ids, handed_ids) = (BTreeSet::new(), BTreeSet::new());
        Self { user, ids, refused: false, unknown: false, deliveries: 0, handed_ids }
    }

    fn tried(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Ok(id) => _ = self.ids.insert(id),
            Outcome::Refused(_) => self.refused = true,
            Outcome::Unknown => self.unknown = true,
        }
    }
}

impl Verdict {
    /// Nothing lost, invented, reordered, split, or counted wrongly. Duplicates are judged by the caller, who knows
    /// how many crashes there were.
    pub fn is_clean(&self) -> bool {
        let faults = [self.lost, self.phantom, self.out_of_order, self.over_quota, self.short_changed];
        faults.iter().sum::<usize>() + self.split_keys == 0
    }

    fn weigh(&mut self, text: &str, message: &Asked<'_>) {
        let acknowledged = !message.ids.is_empty();
        self.asked += 1;
        self.acknowledged += usize::from(acknowledged);
        self.delivered += usize::from(message.deliveries > 0);
        self.duplicated += message.deliveries.saturating_sub(1);
        self.unknown += usize::from(message.unknown && !acknowledged && !message.refused);
        if acknowledged && message.deliveries == 0 {
            self.lost += 1;
            self.example("lost", text);
        }
        if message.deliveries > 0 && message.refused && !acknowledged {
            self.phantom(text, "it was refused");
        }
        if acknowledged && !message.handed_ids.is_subset(&message.ids) {
            self.phantom(text, "handed over under an id that was not acknowledged");
        }
        if message.ids.union(&message.handed_ids).count() > 1 {
            self.split_keys += 1;
            self.example("split key", text);
        }
    }

    fn phantom(&mut self, message: &str, why: &str) {
        self.phantom += 1;
        self.example("phantom", &format!("{message}: {why}"));
    }

    fn example(&mut self, kind: &'static str, text: &str) {
        self.examples.entry(kind).or_insert_with(|| text.to_owned());
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, acknowledged, delivered, unknown, .. } = self;
        writeln!(
            f,
            "{asked} asked, {acknowledged} acknowledged, {unknown} left unknown, {delivered} delivered"
        )?;
        let Self { lost, phantom, duplicated, out_of_order, over_quota, .. } = self;
        write!(f, "{lost} lost, {phantom} phantom, {duplicated} duplicated, {out_of_order} out of order, ")?;
        let Self { short_changed, split_keys, .. } = self;
        write!(f, "{over_quota} over quota, {short_changed} short-changed, {split_keys} split keys")?;
        for (kind, example) in &self.examples {
            write!(f, "\n  {kind}, for example {example}")?;
        }
        Ok(())
    }
}

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::ask::Reply;
use super::traffic::{Client, Request};
use crate::load::Stop;

const JOBS: &str = "jobs";
const TASKS: &str = "tasks";
const RECIPIENTS: usize = 3;
const PACE: Duration = Duration::from_millis(30);
/// Longer than the lease of a job.
const DAWDLE: Duration = Duration::from_millis(1_300);
const TAKEN_MAX: usize = 3;

/// What producers and consumers of pulled queues have seen.
#[derive(Debug, Default)]
pub struct PullJournal {
    /// In the order in which they were pushed.
    pub pushed: Vec<String>,
    pub pops: Vec<Pop>,
    pub acks: Vec<Ack>,
    /// Messages that pops without an answer may have taken along for good.
    pub taken_along_max: usize,
    pub strange: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct Pop {
    pub text: String,
    /// `None`: taken for good.
    pub receipt: Option<String>,
    pub asked: Instant,
    pub answered: Instant,
}

/// An ack that was answered with 200.
#[derive(Debug, Clone)]
pub struct Ack {
    pub text: String,
    pub receipt: String,
    pub asked: Instant,
    pub answered: Instant,
}

impl PullJournal {
    pub fn merge(&mut self, other: Self) {
        self.pushed.extend(other.pushed);
        self.pops.extend(other.pops);
        self.acks.extend(other.acks);
        self.taken_along_max += other.taken_along_max;
        self.strange.extend(other.strange);
    }

    /// What should not have happened.
    pub fn faults(&self) -> Vec<String> {
        let mut pops: Vec<&Pop> = self.pops.iter().collect();
        pops.sort_by_key(|pop| pop.answered);
        let mut faults = self.lost_or_invented(&pops);
        faults.extend(self.popped_twice(&pops));
        faults.extend(self.unfenced(&pops));
        faults.extend(self.out_of_order(&pops));
        faults
    }

    fn lost_or_invented(&self, pops: &[&Pop]) -> Vec<String> {
        let popped: HashSet<&str> = pops.iter().map(|pop| &*pop.text).collect();
        let pushed: HashSet<&str> = self.pushed.iter().map(String::as_str).collect();
        let lost: Vec<&str> = pushed.difference(&popped).copied().collect();
        let (tasks, jobs): (Vec<&str>, Vec<&str>) =
            lost.into_iter().partition(|text| text.starts_with(TASKS));
        let mut faults = Vec::new();
        if let Some(job) = jobs.first() {
            faults.push(format!("{} jobs lost, for example {job}", jobs.len()));
        }
        if tasks.len() > self.taken_along_max {
            let may = self.taken_along_max;
            faults.push(format!("{} tasks lost, {may} may be, for example {}", tasks.len(), tasks[0]));
        }
        faults.extend(popped.difference(&pushed).map(|text| format!("phantom {text}")));
        faults
    }

    /// For good means once, and so does an ack.
    fn popped_twice(&self, pops: &[&Pop]) -> Vec<String> {
        let mut for_good = HashSet::new();
        let again = pops.iter().filter(|pop| pop.receipt.is_none() && !for_good.insert(&pop.text));
        let mut acked: HashMap<&str, Instant> = HashMap::new();
        for ack in &self.acks {
            let first = acked.entry(&ack.text).or_insert(ack.answered);
            *first = ack.answered.min(*first);
        }
        let after_ack = pops.iter().filter(|pop| acked.get(&*pop.text).is_some_and(|at| pop.asked > *at));
        again.chain(after_ack).map(|pop| format!("popped again: {}", pop.text)).collect()
    }

    /// Once somebody else has the message, the earlier receipt is worth nothing.
    fn unfenced(&self, pops: &[&Pop]) -> Vec<String> {
        let late = |ack: &&Ack| {
            let own = pops.iter().find(|pop| pop.receipt.as_deref() == Some(&*ack.receipt));
            let others = pops.iter().filter(|pop| pop.text == ack.text && pop.answered < ack.asked);
            own.is_none_or(|own| others.into_iter().any(|other| other.asked > own.answered))
        };
        self.acks.iter().filter(late).map(|ack| format!("not fenced: {}", ack.text)).collect()
    }

    fn out_of_order(&self, pops: &[&Pop]) -> Vec<String> {
        let places: HashMap<&str, usize> =
            self.pushed.iter().enumerate().map(|(place, text)| (text.as_str(), place)).collect();
        let (mut seen, mut latest) = (BTreeSet::new(), BTreeMap::<&str, usize>::new());
        let mut faults = Vec::new();
        for pop in pops.iter().filter(|pop| pop.receipt.is_some() && seen.insert(&pop.text)) {
            let (Some(place), Some((recipient, _))) = (places.get(&*pop.text), pop.text.split_once('#'))
            else {
                continue;
            };
            let latest = latest.entry(recipient).or_insert(*place);
            if place < latest {
                faults.push(format!("out of order: {}", pop.text));
            }
            *latest = (*place).max(*latest);
        }
        faults
    }
}

/// Jobs and tasks by turns, each under its own key.
pub async fn push(mut client: Client, stop: Stop) -> PullJournal {
    let mut journal = PullJournal::default();
    for round in 0.. {
        if stop.is_set() {
            break;
        }
        let group = if round % 2 == 0 { JOBS } else { TASKS };
        let recipient = format!("{group}-{}", round / 2 % RECIPIENTS);
        let text = format!("{recipient}#{round}");
        let headers = [("consumerGroup", group), ("recipient", &*recipient), ("Idempotency-Key", &*text)];
        let request =
            Request { method: "POST", path: "/queue/push", headers: &headers, body: &text, finals: &[200] };
        if client.insist(request, || ()).await.is_some() {
            journal.pushed.push(text);
        }
        tokio::time::sleep(PACE).await;
    }
    journal.strange = client.strange;
    journal
}

/// Takes jobs under a lease and acks them; now and then too late, when somebody else has them and takes his time.
pub async fn reserve(mut client: Client, number: usize, drained: Stop) -> PullJournal {
    let mut journal = PullJournal::default();
    while !drained.is_set() {
        let max = TAKEN_MAX.to_string();
        let headers = [("consumerGroup", JOBS), ("max", &*max)];
        let request =
            Request { method: "GET", path: "/queue/pop", headers: &headers, body: "", finals: &[200] };
        let asked = Instant::now();
        for (pop, again) in popped(client.once(request).await, asked) {
            journal.pops.push(pop.clone());
            if again {
                tokio::time::sleep(DAWDLE / 2).await;
            } else if (journal.pops.len() + number).is_multiple_of(17) {
                tokio::time::sleep(DAWDLE).await;
            }
            ack(&mut client, &mut journal, pop).await;
        }
        tokio::time::sleep(PACE).await;
    }
    journal.strange = client.strange;
    journal
}

async fn ack(client: &mut Client, journal: &mut PullJournal, pop: Pop) {
    let Some(receipt) = pop.receipt else { return };
    let body = json!({ "receipt": receipt }).to_string();
    let finals = [200, 409];
    let request = Request { method: "POST", path: "/queue/ack", headers: &[], body: &body, finals: &finals };
    // Twice: an ack without an answer may have been done, and the second is then refused.
    for _ in 0..2 {
        let asked = Instant::now();
        match client.once(request).await {
            Some(reply) if reply.status == 200 => {
                let (text, answered) = (pop.text, Instant::now());
                journal.acks.push(Ack { text, receipt, asked, answered });
                return;
            }
            Some(reply) if reply.status != 503 => return,
            _ => (),
        }
    }
}

/// Takes tasks for good.
pub async fn consume(mut client: Client, drained: Stop) -> PullJournal {
    let mut journal = PullJournal::default();
    while !drained.is_set() {
        let max = TAKEN_MAX.to_string();
        let headers = [("consumerGroup", TASKS), ("max", &*max)];
        let request =
            Request { method: "GET", path: "/queue/pop", headers: &headers, body: "", finals: &[200] };
        let asked = Instant::now();
        match client.once(request).await {
            Some(reply) if reply.status == 200 => {
                journal.pops.extend(popped(Some(reply), asked).into_iter().map(|(pop, _)| pop));
            }
            // Not known, whether or not it was said.
            _ => journal.taken_along_max += TAKEN_MAX,
        }
        tokio::time::sleep(PACE).await;
    }
    journal.strange = client.strange;
    journal
}

/// Each with whether somebody had it before.
fn popped(reply: Option<Reply>, asked: Instant) -> Vec<(Pop, bool)> {
    let Some(Value::Array(messages)) = reply.map(|reply| reply.body) else { return Vec::new() };
    let pop = |message: &Value| {
        let text = message["content"].as_str()?.to_owned();
        let receipt = message["receipt"].as_str().map(str::to_owned);
        let again = message["attempt"].as_u64().is_some_and(|attempt| attempt > 1);
        Some((Pop { text, receipt, asked, answered: Instant::now() }, again))
    };
    messages.iter().filter_map(pop).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pops and acks of "jobs-0#0" and "jobs-0#2", by the tenth of a second.
    fn honest() -> PullJournal {
        let begun = Instant::now();
        let at = |tenths: u64| begun + Duration::from_millis(tenths * 100);
        let pop = |text: &str, receipt: &str, tenths| Pop {
            text: text.to_owned(),
            receipt: (!receipt.is_empty()).then(|| receipt.to_owned()),
            asked: at(tenths),
            answered: at(tenths + 1),
        };
        let ack = |text: &str, receipt: &str, tenths| Ack {
            text: text.to_owned(),
            receipt: receipt.to_owned(),
            asked: at(tenths),
            answered: at(tenths + 1),
        };
        PullJournal {
            pushed: ["jobs-0#0", "tasks-0#1", "jobs-0#2"].map(str::to_owned).to_vec(),
            // The first lease of the first ended unsettled.
            pops: vec![
                pop("jobs-0#0", "a", 0),
                pop("jobs-0#0", "b", 20),
                pop("tasks-0#1", "", 5),
                pop("jobs-0#2", "c", 30),
            ],
            acks: vec![ack("jobs-0#0", "b", 22), ack("jobs-0#2", "c", 32)],
            ..PullJournal::default()
        }
    }

    fn fault(change: impl FnOnce(&mut PullJournal)) -> String {
        let mut journal = honest();
        change(&mut journal);
        journal.faults().join("; ")
    }

    #[test]
    fn each_fault_is_found() {
        assert_eq!(honest().faults(), Vec::<String>::new());
        assert!(fault(|journal| _ = journal.pops.pop()).contains("1 jobs lost"));
        assert!(fault(|journal| _ = journal.pops.remove(2)).contains("1 tasks lost, 0 may be"));
        assert!(fault(|journal| _ = journal.pushed.pop()).contains("phantom jobs-0#2"));
        let twice = |journal: &mut PullJournal| journal.pops.push(journal.pops[2].clone());
        assert!(fault(twice).contains("popped again: tasks-0#1"));
        let early = |journal: &mut PullJournal| journal.acks[0].answered = journal.pops[0].answered;
        assert!(fault(early).contains("popped again: jobs-0#0"));
        let stale = |journal: &mut PullJournal| journal.acks[0].receipt = "a".to_owned();
        assert!(fault(stale).contains("not fenced: jobs-0#0"));
        let swapped = |journal: &mut PullJournal| journal.pushed.swap(0, 2);
        assert!(fault(swapped).contains("out of order"));
    }
}

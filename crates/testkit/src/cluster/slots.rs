use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};

use super::Cluster;
use super::traffic::{Client, Request};
use crate::load::Stop;

const PER_WINDOW: usize = 5;
const PACE: Duration = Duration::from_millis(40);
/// All events ask for this time, at the beginning of a window, so that they have to line up behind it.
const WANTED: &str = "2099-06-01T12:00:00Z";

/// What askers for slots have been told, each answer of each event.
#[derive(Debug, Default)]
pub struct SlotJournal {
    pub told: BTreeMap<String, BTreeSet<(String, String)>>,
    pub strange: Vec<String>,
}

impl SlotJournal {
    /// What should not have happened.
    pub fn faults(&self) -> Vec<String> {
        let mut windows: BTreeMap<&str, usize> = BTreeMap::new();
        let mut faults = Vec::new();
        for (event, told) in &self.told {
            if told.len() > 1 {
                faults.push(format!("{event} was told {} slots", told.len()));
            }
            for (window, _) in told {
                *windows.entry(window).or_default() += 1;
            }
        }
        let over = windows.iter().filter(|(_, count)| **count > PER_WINDOW);
        faults.extend(over.map(|(window, count)| format!("{count} slots in the window {window}")));
        faults
    }
}

pub async fn configure(cluster: &Cluster) -> anyhow::Result<()> {
    let rule = json!({"configName": "default", "maxPerWindow": PER_WINDOW, "windowSize": "PT1S"});
    let reply = cluster.post(0, "/admin/rate-limit/config", &rule).await?;
    ensure!(reply.status == 200, "{reply:?}");
    Ok(())
}

/// Every event asks twice, at two gateways.
pub async fn ask_for_slots(mut client: Client, stop: Stop) -> SlotJournal {
    let mut journal = SlotJournal::default();
    for number in 0.. {
        if stop.is_set() {
            break;
        }
        let event = format!("event-{number}");
        let body = json!({"eventId": event, "requestedTime": WANTED}).to_string();
        let request =
            Request { method: "POST", path: "/api/v1/slots", headers: &[], body: &body, finals: &[200, 201] };
        for _ in 0..2 {
            let Some(reply) = client.insist(request, || ()).await else { continue };
            let text = |name: &str| reply.body[name].as_str().map(str::to_owned);
            match (text("windowStart"), text("scheduledTime")) {
                (Some(window), Some(time)) => {
                    journal.told.entry(event.clone()).or_default().insert((window, time));
                }
                _ => client.strange.push(format!("slot {}", Value::clone(&reply.body))),
            }
        }
        tokio::time::sleep(PACE).await;
    }
    journal.strange = client.strange;
    journal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_is_too_full_and_an_event_with_two_slots_are_found() {
        let mut journal = SlotJournal::default();
        let mut told = |event: usize, time: usize| {
            let slot = ("w".to_owned(), time.to_string());
            journal.told.entry(format!("e{event}")).or_default().insert(slot);
            journal.faults()
        };
        for event in 0..PER_WINDOW {
            assert!(told(event, event).is_empty());
        }
        assert_eq!(told(PER_WINDOW, 9), ["6 slots in the window w"]);
        assert!(told(0, 10).contains(&"e0 was told 2 slots".to_owned()));
    }
}

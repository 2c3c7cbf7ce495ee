use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::{Value, json};
use tidegate_domain::MessageId;
use tokio::task::{JoinHandle, JoinSet};

use super::ask::{Reply, ask};
use super::pulls::{self, PullJournal};
use super::slots::{self, SlotJournal};
use super::{Cluster, verdict};
use crate::HANG;
use crate::journal::{ClientJournal, Outcome};
use crate::load::Stop;

const CLIENTS: usize = 4;
const USERS: usize = 5;
const CONTENDERS: usize = 3;
const CONTENDED_USERS: usize = 3;
/// Of a user's messages, or of all that contend for one: reached within a few seconds.
const SMALL_LIMIT: u32 = 40;
const NEVER_REACHED: u32 = 1_000_000_000;
const PACE: Duration = Duration::from_millis(60);
/// Messages for one user in a row.
const BURST: usize = 5;
const AGAIN_AFTER: Duration = Duration::from_millis(25);
/// Then a client goes to another gateway, whatever comes of it at this one.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(3);

/// Clients over all gateways, until they are told to stop.
#[derive(Debug)]
pub struct Traffic {
    stop: Stop,
    drained: Stop,
    acknowledged: Arc<AtomicU64>,
    ordered: JoinSet<Sent>,
    contended: JoinSet<Sent>,
    pushing: JoinHandle<PullJournal>,
    pulling: JoinSet<PullJournal>,
    slots: JoinHandle<SlotJournal>,
    limits: BTreeMap<String, u32>,
}

type Sent = (ClientJournal, Vec<String>);

/// What the clients have seen.
#[derive(Debug, Default)]
pub struct Notes {
    /// Of users with one client each, whose order is known.
    pub ordered: ClientJournal,
    /// Of users that several clients send for at the same time.
    pub contended: ClientJournal,
    pub pulls: PullJournal,
    pub slots: SlotJournal,
    pub limits: BTreeMap<String, u32>,
    /// Answers that a sound cluster does not give.
    pub strange: Vec<String>,
}

/// One client, who goes to another gateway with every request.
#[derive(Debug, Clone)]
pub struct Client {
    gateways: Vec<SocketAddr>,
    turn: usize,
    pub acknowledged: Arc<AtomicU64>,
    pub strange: Vec<String>,
}

/// Asked of any gateway.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub headers: &'a [(&'a str, &'a str)],
    pub body: &'a str,
    /// Statuses that settle the matter. Beside them, only a 503 with Retry-After is in order.
    pub finals: &'a [u16],
}

impl Traffic {
    pub async fn start(cluster: &Cluster) -> anyhow::Result<Self> {
        let limits = limits();
        for (user, limit) in &limits {
            cluster.configure(user, *limit).await?;
        }
        slots::configure(cluster).await?;
        let (stop, drained) = (Stop::default(), Stop::default());
        let acknowledged = Arc::<AtomicU64>::default();
        let gateways: Vec<_> = cluster.gateways.iter().map(|node| node.address).collect();
        let client = |turn: usize| Client {
            gateways: gateways.clone(),
            turn,
            acknowledged: acknowledged.clone(),
            strange: Vec::new(),
        };
        let (mut ordered, mut contended, mut pulling) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
        for n in 0..CLIENTS {
            let users = (0..USERS).map(|user| name(n, user)).collect();
            ordered.spawn(send(client(n), users, String::new(), stop.clone()));
        }
        for n in 0..CONTENDERS {
            let users = (0..CONTENDED_USERS).map(contended_name).collect();
            contended.spawn(send(client(n), users, format!("{n}-"), stop.clone()));
        }
        for n in 0..2 {
            pulling.spawn(pulls::reserve(client(n), n, drained.clone()));
        }
        pulling.spawn(pulls::consume(client(0), drained.clone()));
        let pushing = tokio::spawn(pulls::push(client(1), stop.clone()));
        let slots = tokio::spawn(slots::ask_for_slots(client(2), stop.clone()));
        Ok(Self { stop, drained, acknowledged, ordered, contended, pushing, pulling, slots, limits })
    }

    /// Waits until as many messages more have been acknowledged, and as many delivered.
    pub async fn progress(&self, cluster: &Cluster, messages: usize) -> anyhow::Result<()> {
        let now = || (self.acknowledged.load(Ordering::Relaxed), cluster.provider.journal().attempts.len());
        let (begun, before) = (Instant::now(), now());
        loop {
            let now = now();
            if now.0 >= before.0 + messages as u64 && now.1 >= before.1 + messages {
                return Ok(());
            }
            ensure!(begun.elapsed() < HANG, "no progress: {before:?}, now {now:?}");
            tokio::time::sleep(PACE).await;
        }
    }

    /// Ends the load, lets everything be delivered and pulled, and hands over the notes and the books.
    pub async fn finish(self, cluster: &Cluster) -> anyhow::Result<(Notes, Value)> {
        self.stop.now();
        let mut notes = Notes { limits: self.limits, ..Notes::default() };
        for (into, from) in [(&mut notes.ordered, self.ordered), (&mut notes.contended, self.contended)] {
            for (journal, strange) in from.join_all().await {
                into.tries.extend(journal.tries);
                notes.strange.extend(strange);
            }
        }
        notes.pulls = self.pushing.await?;
        notes.slots = self.slots.await?;
        let totals = cluster.drained().await;
        self.drained.now();
        for journal in self.pulling.join_all().await {
            notes.pulls.merge(journal);
        }
        notes.strange.append(&mut notes.pulls.strange);
        notes.strange.append(&mut notes.slots.strange);
        totals.map(|totals| (notes, totals))
    }
}

impl Client {
    /// Goes from gateway to gateway until one of them settles the matter. `unsettled` is told of every other answer.
    pub async fn insist(&mut self, request: Request<'_>, mut unsettled: impl FnMut()) -> Option<Reply> {
        let begun = Instant::now();
        while begun.elapsed() < HANG {
            if let Some(reply) = self.once(request).await {
                match request.finals.contains(&reply.status) {
                    true => return Some(reply),
                    false if reply.status != 503 => return None,
                    false => {}
                }
            }
            unsettled();
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        self.strange.push(format!("{} {}: no answer for {HANG:?}", request.method, request.path));
        None
    }

    /// One gateway's answer, if it gave one.
    pub async fn once(&mut self, request: Request<'_>) -> Option<Reply> {
        self.turn += 1;
        let gateway = self.gateways[self.turn % self.gateways.len()];
        let Request { method, path, headers, body, finals } = request;
        let reply = ask(gateway, method, path, headers, body.as_bytes(), GIVEN_UP_AFTER).await?;
        let in_order = finals.contains(&reply.status) || (reply.status == 503 && reply.retry_after);
        if !in_order {
            self.strange.push(format!("{method} {path}: {reply:?}"));
        }
        Some(reply)
    }
}

/// Each user's messages one after the other, so that their order is known, and a few at a time, so that they line up.
async fn send(mut client: Client, users: Vec<String>, mark: String, stop: Stop) -> Sent {
    let mut journal = ClientJournal::default();
    for round in 0.. {
        let user = &users[round / BURST % users.len()];
        if round % BURST == 0 {
            tokio::time::sleep(PACE).await;
        }
        if stop.is_set() {
            return (journal, client.strange);
        }
        let text = format!("{user}#{mark}{round}");
        let body = json!({"userId": user, "message": text}).to_string();
        let request = Request {
            method: "POST",
            path: "/api/send",
            headers: &[("Idempotency-Key", &text)],
            body: &body,
            finals: &[200, 429],
        };
        let unknown = || journal.note(&**user, &*text, Outcome::Unknown);
        let outcome = match client.insist(request, unknown).await {
            Some(reply) if reply.status == 429 => Outcome::Refused(429),
            reply => reply.and_then(|reply| id_in(&reply.body)).map_or(Outcome::Unknown, Outcome::Ok),
        };
        journal.note(&**user, &*text, outcome);
        client.acknowledged.fetch_add(u64::from(matches!(outcome, Outcome::Ok(_))), Ordering::Relaxed);
    }
    (journal, client.strange)
}

pub fn id_in(body: &Value) -> Option<MessageId> {
    body["id"].as_str()?.parse().ok()
}

/// One of every client's users comes to its limit; all contended ones do.
fn limits() -> BTreeMap<String, u32> {
    let ordered = (0..CLIENTS).flat_map(|client| {
        (0..USERS).map(move |user| (name(client, user), if user == 0 { SMALL_LIMIT } else { NEVER_REACHED }))
    });
    ordered.chain((0..CONTENDED_USERS).map(|user| (contended_name(user), SMALL_LIMIT * 2))).collect()
}

fn name(client: usize, user: usize) -> String {
    format!("u{client}.{user}")
}

fn contended_name(user: usize) -> String {
    format!("{}{user}", verdict::CONTENDED)
}

//! `kill -9` in a loop under load, with a provider that fails, stalls, lies and answers late, judged from the client's
//! and the provider's journals.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::tempdir;
use tidegate_domain::{MessageId, Status};
use tidegate_testkit::HANG;
use tidegate_testkit::WebProvider;
use tidegate_testkit::journal::{ClientJournal, Outcome, Tried, WebAnswer};
use tidegate_testkit::judge::{Budget, judge_attempts};

use crate::client::try_exchange;
use crate::gateway::{Gateway, start};

const PATH: &str = "/api/v1/messages";
const LIVES: u32 = 8;
const CLIENTS: usize = 4;
const RECIPIENTS: usize = 20;
const BUDGET: Budget = Budget { attempts_max: 4, in_flight_max: 16 };
/// Long after an answer that comes at once, however busy the machine.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
/// And long after the gateway has given up.
const LATE: Duration = Duration::from_secs(6);
const DELIVERED_MIN: u64 = 100;
/// What can become of a message, and of an attempt.
const ENDINGS: [&str; 4] = ["delivered", "dead", "expired", "deleted"];
const ANSWERS: usize = 8;

#[test]
fn kills_lose_nothing_invert_nothing_and_keep_the_budget() {
    let dir = tempdir().unwrap();
    let provider = WebProvider::start(LATE, whimsical).unwrap();
    let mut gateway = live(dir.path(), &provider, 1);
    let load = Load { address: Arc::new(Mutex::new(gateway.address)), stop: Arc::default() };
    let clients: Vec<_> = (0..CLIENTS).map(|number| std::thread::spawn(load.client(number))).collect();
    for life in 2..=LIVES {
        sleep(Duration::from_millis(200 + u64::from(life) * 83 % 400));
        gateway.signal("-KILL");
        gateway.wait();
        gateway = live(dir.path(), &provider, life);
        *load.address.lock().unwrap() = gateway.address;
    }
    worthy(&gateway, &provider);
    load.stop.store(true, Ordering::SeqCst);
    let (mut client, mut cancelled) = (ClientJournal::default(), Vec::new());
    for (journal, taken_back) in clients.into_iter().map(|client| client.join().unwrap()) {
        client.tries.extend(journal.tries);
        cancelled.extend(taken_back);
    }
    let totals = drained(&gateway);

    let endings = endings(&gateway);
    let verdict = judge_attempts(&client, &provider.journal(), &endings, BUDGET);
    eprintln!("{verdict:#?}");
    assert!(verdict.is_clean());
    for id in &cancelled {
        assert_eq!(endings.get(id), Some(&Status::Deleted), "{id}: taken back is taken back");
    }
    // The books agree with what the outside world counted.
    let ends = |word| verdict.endings.get(word).copied().unwrap_or(0);
    assert_eq!((&totals["balanced"], &totals["pending"]), (&json!(true), &json!(0)), "{totals}");
    assert_eq!(totals["admitted"], endings.len(), "nothing admitted that nobody was told of");
    for word in ENDINGS {
        assert_eq!(totals[word], ends(word), "{word} in {totals}");
    }
}

/// Waits until the run is worth its name: enough was delivered, and every end and every kind of answer was met.
fn worthy(gateway: &Gateway, provider: &WebProvider) {
    let begun = Instant::now();
    loop {
        let totals = gateway.get("/api/v1/stats").json()["totals"].take();
        let count = |word: &str| totals[word].as_u64().unwrap_or(0);
        let answers: HashSet<_> = provider.journal().attempts.iter().map(|tried| tried.answer).collect();
        let all_met = ENDINGS.iter().all(|word| count(word) > 0) && answers.len() == ANSWERS;
        if all_met && count("delivered") > DELIVERED_MIN {
            return;
        }
        assert!(begun.elapsed() < HANG, "it proves little: {totals}, {answers:?}");
        sleep(Duration::from_millis(50));
    }
}

/// What the provider does with an attempt follows from the attempt.
fn whimsical(tried: &Tried) -> WebAnswer {
    let mut hasher = DefaultHasher::new();
    (tried.life, &tried.message, tried.number).hash(&mut hasher);
    match hasher.finish() % 100 {
        0..15 => WebAnswer::Fail,
        15..22 => WebAnswer::TakeAndFail,
        22..27 => WebAnswer::Cut,
        27..30 => WebAnswer::Stall,
        30..33 => WebAnswer::Late,
        33..36 => WebAnswer::Refuse,
        36..43 => WebAnswer::TakeAndForget,
        _ => WebAnswer::Take,
    }
}

fn live(dir: &Path, provider: &WebProvider, life: u32) -> Gateway {
    let config = format!(
        "[webhook]\nurl = \"{}\"\nallow = [\"127.0.0.0/8\"]\n\
         [[queues]]\nname = \"hooks\"\nchannel = \"webhook\"\n\
         [sender]\nconcurrency = {}\nattempts_max = {}\nattempt_timeout_ms = {}\nretry_base_ms = 20\n\
         retry_max_ms = 100\n[breaker]\nfailure_percent = 100\n",
        provider.url(life),
        BUDGET.in_flight_max,
        BUDGET.attempts_max,
        ATTEMPT_TIMEOUT.as_millis(),
    );
    std::fs::write(dir.join("tidegate.toml"), config).unwrap();
    start(dir)
}

/// Clients that send until they are stopped, and repeat each request until it is answered.
struct Load {
    address: Arc<Mutex<SocketAddr>>,
    stop: Arc<AtomicBool>,
}

impl Load {
    /// Its journal, and the messages that it has taken back.
    fn client(&self, number: usize) -> impl FnOnce() -> (ClientJournal, Vec<MessageId>) + Send + 'static {
        let (address, stop) = (self.address.clone(), self.stop.clone());
        let ask = move |method: &str, path: &str, body: &str| {
            let address = *address.lock().unwrap();
            try_exchange(address, method, path, &[], body).ok()
        };
        move || {
            let (mut journal, mut cancelled) = (ClientJournal::default(), Vec::new());
            for round in 0.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                // One that is put off holds up the next one of its recipient, which expires meanwhile.
                let (put_off, expires) = (round % 31 == 0, round % 31 == 1);
                let which = if put_off || expires { RECIPIENTS } else { round % RECIPIENTS };
                let recipient = format!("c{number}r{which}");
                let text = format!("{recipient}#{round}");
                let mut message =
                    json!({"queue": "hooks", "recipient": recipient, "body": text, "idempotencyKey": text});
                if put_off {
                    message["delaySeconds"] = json!(2);
                } else if expires {
                    message["ttlSeconds"] = json!(1);
                }
                let message = message.to_string();
                let id = loop {
                    let answer = ask("POST", PATH, &message).filter(|answer| answer.status < 500);
                    // A kill may cut an answer short.
                    let known = answer.and_then(|answer| serde_json::from_str::<Value>(&answer.text).ok());
                    if let Some(id) = known.and_then(|known| known["id"].as_str()?.parse().ok()) {
                        journal.note(&*recipient, &*text, Outcome::Ok(id));
                        break id;
                    }
                    journal.note(&*recipient, &*text, Outcome::Unknown);
                    sleep(Duration::from_millis(10));
                };
                if round % 23 == 0 {
                    let answer = ask("DELETE", &format!("{PATH}/{id}"), "");
                    cancelled.extend(answer.filter(|answer| answer.status == 204).map(|_| id));
                }
                sleep(Duration::from_millis(8));
            }
            (journal, cancelled)
        }
    }
}

/// The books, when nothing is left to do.
fn drained(gateway: &Gateway) -> Value {
    let begun = Instant::now();
    loop {
        let totals = gateway.get("/api/v1/stats").json()["totals"].take();
        if totals["pending"] == 0 {
            return totals;
        }
        assert!(begun.elapsed() < HANG, "it is stuck: {totals}");
        sleep(Duration::from_millis(50));
    }
}

/// What the gateway says of every message that it knows.
fn endings(gateway: &Gateway) -> HashMap<MessageId, Status> {
    let (mut endings, mut cursor) = (HashMap::new(), String::new());
    loop {
        let page = gateway.get(&format!("{PATH}?queue=hooks&limit=500{cursor}"));
        assert_eq!(page.status, 200, "{page:?}");
        let page = page.json();
        for message in page["messages"].as_array().unwrap() {
            let status = match message["status"].as_str().unwrap() {
                "delivered" => Status::Delivered,
                "dead" => Status::Dead,
                "expired" => Status::Expired,
                "deleted" => Status::Deleted,
                _ => Status::Pending,
            };
            endings.insert(message["id"].as_str().unwrap().parse().unwrap(), status);
        }
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return endings,
        }
    }
}

//! Strict order per recipient with many claimers in several processes, while everything else goes on as well.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tidegate_domain::{
    Admitted, Begun, Claim, ClaimRequest, Extension, Lane, Ledger, Outcome, Queues as _, Settled, Settlement,
    Timestamp, Transit as _,
};
use tidegate_postgres::Postgres;
use tidegate_testkit::HANG;
use tidegate_testkit::conformance::{queue, sms};
use tidegate_testkit::services;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::backend::PostgresBackend;

const RECIPIENTS: usize = 12;
const MESSAGES: usize = 40;

/// What the providers saw, by recipient: who is being served, and what was delivered in which order.
#[derive(Debug, Default)]
struct Provider {
    under_way: Mutex<BTreeMap<String, String>>,
    delivered: Mutex<BTreeMap<String, Vec<String>>>,
}

impl Provider {
    fn begin(&self, claim: &Claim) {
        let recipient = claim.recipient.as_ref().unwrap().to_string();
        let text = String::from_utf8(claim.body.as_ref().unwrap().to_vec()).unwrap();
        let before = self.under_way.lock().unwrap().insert(recipient.clone(), text.clone());
        assert_eq!(before, None, "two at a time for {recipient}: {text} too");
    }

    fn end(&self, claim: &Claim, is_delivered: bool) {
        let recipient = claim.recipient.as_ref().unwrap().to_string();
        let text = self.under_way.lock().unwrap().remove(&recipient).expect("begun");
        if is_delivered {
            self.delivered.lock().unwrap().entry(recipient).or_default().push(text);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_recipient_is_served_in_order_by_many_claimers_of_three_gateways() {
    let backend = PostgresBackend::empty();
    let gateways = backend.gateways(3, |options| options.batch_max = 16).await;
    let provider = Arc::new(Provider::default());
    let mut tasks = JoinSet::new();
    for recipient in 0..RECIPIENTS {
        tasks.spawn(admit_in_order(gateways.clone(), recipient));
    }
    for (recipient, gateway) in gateways.iter().enumerate().take(2) {
        tasks.spawn(admit_what_is_taken_back(gateway.clone(), recipient));
    }
    for n in 0..9 {
        let source = match n % 2 {
            0 => Source::Claims,
            _ => Source::Bus { begins: gateways[(n + 1) % 3].clone() },
        };
        tasks.spawn(serve(gateways[n % 3].clone(), source, provider.clone(), n));
    }
    timeout(HANG, tasks.join_all()).await.expect("everything ends");

    let expected: Vec<String> = (0..MESSAGES).map(|n| n.to_string()).collect();
    let delivered = provider.delivered.lock().unwrap().clone();
    assert_eq!(delivered.len(), RECIPIENTS);
    for (recipient, texts) in delivered {
        assert_eq!(texts, expected, "to {recipient}");
    }
    let counts = gateways[0].counts().await.unwrap();
    assert!(counts.balanced() && counts.pending == 0, "{counts:?}");
    assert_eq!(counts.delivered, (RECIPIENTS * MESSAGES) as u64);
    let log = services::Postgres::shared().log().unwrap();
    assert!(!log.contains("deadlock detected"), "{log}");
}

/// Each through another gateway, when the one before is in: so their order is known.
async fn admit_in_order(gateways: Vec<Arc<Postgres>>, recipient: usize) {
    for n in 0..MESSAGES {
        let lane = Lane::ALL[(n * 7 + recipient) % 3];
        let other = (recipient + 1) % RECIPIENTS;
        // Beside it something that is over at once, for another recipient, in an order that batches mix up.
        let over = sms("over").to(&format!("r{other}")).expires(Timestamp::from_millis(1));
        let draft = sms(&n.to_string()).to(&format!("r{recipient}")).lane(lane);
        let batch = if n % 2 == 0 { vec![draft.0, over.0] } else { vec![over.0, draft.0] };
        let answers = gateways[(n + recipient) % 3].admit(batch).await.unwrap();
        assert!(answers.iter().all(|answer| matches!(answer, Admitted::Admitted { .. })), "{answers:?}");
    }
}

/// Due in an hour, so that nobody is in the way of taking them back. Ends when they all are.
async fn admit_what_is_taken_back(gateway: Arc<Postgres>, recipient: usize) {
    for n in 0..MESSAGES {
        let draft = sms(&format!("back{n}")).on("elsewhere").to(&format!("r{recipient}"));
        let answers = gateway.admit(vec![draft.clone().0, draft.clone().on("purged").0]).await.unwrap();
        let Admitted::Admitted { id, .. } = answers[0] else { panic!("{answers:?}") };
        gateway.cancel(vec![id]).await.unwrap();
        if n % 8 == 7 {
            gateway.purge(queue("purged")).await.unwrap();
        }
    }
    gateway.purge(queue("purged")).await.unwrap();
}

/// How a server gets at its messages: itself, or over a bus that ends at another gateway, and loses and repeats records.
enum Source {
    Claims,
    Bus { begins: Arc<Postgres> },
}

impl Source {
    async fn take(&self, gateway: &Postgres, max: usize, round: usize) -> Vec<Claim> {
        let request = ClaimRequest { queue: queue("sms"), max, lease_ms: 60_000, wait_ms: 20 };
        let begins = match self {
            Self::Claims => return gateway.claim(request).await.unwrap(),
            Self::Bus { begins } => begins,
        };
        let request = ClaimRequest { lease_ms: 30, ..request };
        let mut records = gateway.dispatch(request, 4).await.unwrap();
        if round % 7 == 3 {
            records.pop();
        }
        let beginning = |record: &Claim| Extension { id: record.id, token: record.token, lease_ms: 60_000 };
        let batch: Vec<_> = records.iter().map(beginning).collect();
        // Both ends may have it, and one of them twice.
        let twice = [batch.clone(), batch.clone()].concat();
        let (here, there) = tokio::join!(gateway.begin(batch), begins.begin(twice));
        let begun = [here.unwrap(), there.unwrap()].concat();
        let mut claims = Vec::new();
        for (begun, record) in begun.iter().zip(records.iter().cycle()) {
            if let Begun::Begun { token, lease_until } = *begun {
                claims.push(Claim { token, lease_until, ..record.clone() });
            }
        }
        claims
    }
}

/// Delivers, fails, or hands back, and settles, until everything is delivered.
async fn serve(gateway: Arc<Postgres>, source: Source, provider: Arc<Provider>, n: usize) {
    let mut round = n;
    loop {
        let claims = source.take(&gateway, 1 + n % 4, round).await;
        claims.iter().for_each(|claim| provider.begin(claim));
        tokio::task::yield_now().await;
        let settlements = claims.iter().map(|claim| {
            round += 1;
            let outcome = match round % 5 {
                0 => Outcome::Retry { delay_ms: 1, reason: "busy".into() },
                1 => Outcome::Released,
                _ => Outcome::Delivered,
            };
            // Before the ledger knows: from then on another may be served.
            provider.end(claim, outcome == Outcome::Delivered);
            Settlement { id: claim.id, token: claim.token, outcome, latency_ms: 1 }
        });
        let settled = gateway.settle(settlements.collect()).await.unwrap();
        assert!(settled.iter().all(|settled| *settled == Settled::Done), "{settled:?}");
        if gateway.counts().await.unwrap().delivered == (RECIPIENTS * MESSAGES) as u64 {
            return;
        }
    }
}

//! Who waits for work when the disk is full goes on waiting.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_testkit::{Disk, can_cut_power};

use crate::client::{Answer, exchange};
use crate::disk::fill;
use crate::gateway::{Gateway, eventually, start};

/// After the disk is full, on a slow machine too.
const DUE: Duration = Duration::from_secs(12);

fn push(gateway: &Gateway, group: &str) {
    let headers = [("consumerGroup", group), ("delaySeconds", &DUE.as_secs().to_string())];
    assert_eq!(exchange(gateway.address, "POST", "/queue/push", &headers, "due while full").status, 200);
}

fn waiting_pop(gateway: &Gateway, group: &'static str) -> JoinHandle<Answer> {
    let address = gateway.address;
    std::thread::spawn(move || {
        exchange(address, "GET", "/queue/pop", &[("consumerGroup", group), ("waitSeconds", "30")], "")
    })
}

/// Messages that fall due on a full disk are handed out by nobody: what became of them could not be written down.
#[test]
fn waiting_claims_and_pops_outlast_a_full_disk() {
    if !can_cut_power() {
        eprintln!("left out: a disk of its own needs root, loop devices and mkfs.ext4");
        return;
    }
    let disk = Disk::new(24 << 20).unwrap();
    let config = "[[queues]]\nname = \"leased\"\nmode = \"reserve\"\n";
    std::fs::write(disk.path().join("tidegate.toml"), config).unwrap();
    let gateway = start(&disk.path());
    gateway.configure("alice", 1_000_000);
    // On a full disk a pop is refused; these have begun to wait before.
    let pops = [waiting_pop(&gateway, "popped"), waiting_pop(&gateway, "leased")];
    let begun = Instant::now();
    push(&gateway, "popped");
    push(&gateway, "leased");
    let later = json!({"recipient": "ann", "body": "sent while full", "delaySeconds": DUE.as_secs()});
    let sent = gateway.post("/api/v1/messages", &later).json()["id"].as_str().unwrap().to_owned();
    let filler = fill(&disk.path());
    eventually(|| (gateway.send("alice", &"x".repeat(100_000)).status == 507).then_some(()));
    assert!(begun.elapsed() < DUE, "the disk was to be full before they fall due");
    std::thread::sleep(DUE + Duration::from_millis(1_500) - begun.elapsed());
    assert_eq!(gateway.get("/health/ready").status, 503);
    let is_out = || gateway.stdout.all().iter().any(|line| line.contains("sent while full"));
    assert!(pops.iter().all(|pop| !pop.is_finished()) && !is_out(), "{:?}", gateway.stdout.all());
    let totals = gateway.get("/api/v1/stats").json()["totals"].clone();
    assert_eq!((&totals["leased"], &totals["balanced"]), (&json!(0), &json!(true)), "{totals}");

    std::fs::remove_file(filler).unwrap();
    for pop in pops {
        let popped = pop.join().unwrap();
        assert_eq!((popped.status, &popped.json()["content"]), (200, &json!("due while full")), "{popped:?}");
    }
    gateway.delivered(&sent);
    gateway.stdout.wait_for("sent while full");
    let lines = gateway.stdout.all();
    assert_eq!(lines.iter().filter(|line| line.contains("sent while full")).count(), 1, "{lines:?}");
    assert_eq!(gateway.get("/api/v1/stats").json()["totals"]["balanced"], true);
    assert_eq!(gateway.stop().code(), Some(0));
}

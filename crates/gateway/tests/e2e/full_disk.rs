//! Who waits for work when the disk is full goes on waiting.

use std::fs::File;
use std::path::Path;
use std::thread::JoinHandle;

use serde_json::json;
use tidegate_testkit::{Disk, can_cut_power, metric_in};

use crate::client::{Answer, exchange};
use crate::disk::fill;
use crate::gateway::{Gateway, WallClock, eventually};

const DELAY_SECONDS: u64 = 3_600;
/// Less than the ledger wants to see before it takes writes again, and more than a pop needs.
const ROOM_BYTES: u64 = 64 << 10;

fn push(gateway: &Gateway, group: &str) {
    let headers = [("consumerGroup", group), ("delaySeconds", &DELAY_SECONDS.to_string())];
    assert_eq!(exchange(gateway.address, "POST", "/queue/push", &headers, "due while full").status, 200);
}

fn waiting_pop(gateway: &Gateway, group: &'static str) -> JoinHandle<Answer> {
    let address = gateway.address;
    std::thread::spawn(move || {
        exchange(address, "GET", "/queue/pop", &[("consumerGroup", group), ("waitSeconds", "300")], "")
    })
}

/// A disk with room for a little, but not for what clients send.
fn fill_nearly(disk: &Path) -> std::path::PathBuf {
    let filler = fill(disk);
    let file = File::options().write(true).open(&filler).unwrap();
    file.set_len(file.metadata().unwrap().len() - ROOM_BYTES).unwrap();
    // The room is there once the file system has written down that it is.
    file.sync_all().unwrap();
    filler
}

/// Messages that fall due on a full disk are handed out by nobody: what became of them could not be written down.
#[test]
fn waiting_claims_and_pops_outlast_a_full_disk() {
    if !can_cut_power() {
        eprintln!("left out: a disk of its own needs root, loop devices and mkfs.ext4");
        return;
    }
    let disk = Disk::new(24 << 20).unwrap();
    let config = "[queue]\nwait_seconds_max = 300\n[[queues]]\nname = \"leased\"\nmode = \"reserve\"\n";
    std::fs::write(disk.path().join("tidegate.toml"), config).unwrap();
    let (gateway, clock) = WallClock::start(&disk.path());
    gateway.configure("alice", 1_000_000);
    // On a full disk a pop is refused; these wait before.
    let pops = [waiting_pop(&gateway, "popped"), waiting_pop(&gateway, "leased")];
    let waiting = || metric_in(&gateway.get("/metrics").text, "tidegate_queue_pops_waiting");
    eventually(|| (waiting() == Some(2.0)).then_some(()));
    push(&gateway, "popped");
    push(&gateway, "leased");
    let later = json!({"recipient": "ann", "body": "sent while full", "delaySeconds": DELAY_SECONDS});
    let sent = gateway.post("/api/v1/messages", &later).json()["id"].as_str().unwrap().to_owned();
    let filler = fill_nearly(&disk.path());
    eventually(|| (gateway.send("alice", &"x".repeat(100_000)).status == 507).then_some(()));

    clock.set_forward(DELAY_SECONDS + 1);
    // A pop asks the ledger again every second. After three more refusals of new work each waiting one has asked.
    for _ in 0..3 {
        std::thread::sleep(std::time::Duration::from_secs(1));
        assert_eq!(gateway.send("alice", "small").status, 507);
    }
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

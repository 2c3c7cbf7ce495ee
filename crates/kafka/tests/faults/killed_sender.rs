use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use tidegate_domain::Bus;
use tidegate_testkit::bus::queue;

use super::backend::Backend;
use super::{claims, in_time, receive_all, shared};

const VICTIM: &str = "TIDEGATE_KAFKA_VICTIM";
const HAS_SOME: &str = "has some";

/// Not a test by itself: another process to be killed.
#[tokio::test(flavor = "multi_thread")]
async fn victim() {
    let Ok(text) = std::env::var(VICTIM) else { return };
    let (servers, prefix) = text.split_once(' ').unwrap();
    let bus = Backend { servers: servers.to_owned(), prefix: prefix.to_owned() }.bus().await;
    let mut consumer = bus.consumer(queue("sms")).await.unwrap();
    in_time("records", async { while consumer.receive(100, 100).await.unwrap().is_empty() {} }).await;
    println!("{HAS_SOME}");
    in_time("being killed", std::future::pending::<()>()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_sender_had_goes_to_another() {
    let Some(kafka) = shared() else { return };
    let backend = Backend::new(kafka.bootstrap());
    let bus = backend.bus().await;
    in_time("records are confirmed", async {
        assert_eq!(bus.publish(claims(0..100)).await, vec![Ok(()); 100]);
    })
    .await;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "killed_sender::victim", "--nocapture"]);
    command.env(VICTIM, format!("{} {}", backend.servers, backend.prefix));
    let mut victim = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let has_some =
        tokio::task::spawn_blocking(move || lines.map_while(Result::ok).any(|line| line.contains(HAS_SOME)));
    assert!(in_time("the victim receives", has_some).await.unwrap());
    let mut consumer = bus.consumer(queue("sms")).await.unwrap();
    victim.kill().unwrap();
    victim.wait().unwrap();
    let begun = Instant::now();
    receive_all(&mut *consumer, claims(0..100)).await;
    println!("taken over after {:?}", begun.elapsed());
}

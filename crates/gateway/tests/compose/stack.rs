use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tidegate_testkit::services::program;

use crate::container::Container;
use crate::file::{Compose, text_of};
use crate::network::{Network, eventually};

/// One stack at a time: six programs are as much as a small machine starts in time.
static TURN: Mutex<()> = Mutex::new(());

const HEADING: &str = "## The whole stack";
/// Nobody answers, or at once: no need to wait as long as an engine would.
const SHORTLY: Duration = Duration::from_secs(5);

/// `docker compose up`: all services of the file that belong to these profiles.
struct Stack<'a> {
    compose: &'a Compose,
    running: BTreeMap<&'a str, Container<'a>>,
    network: Network,
}

impl<'a> Stack<'a> {
    fn up(compose: &'a Compose, profiles: &[&str]) -> Self {
        let wanted = |of: Vec<String>| of.is_empty() || of.iter().any(|one| profiles.contains(&one.as_str()));
        let services = compose.services().into_iter().filter(|service| wanted(service.profiles()));
        let names: Vec<_> = services.map(|service| service.name).collect();
        let mut stack = Self { compose, running: BTreeMap::new(), network: Network::new(&names) };
        while stack.running.len() < names.len() {
            let is_running = |stack: &Self, name: &str| stack.running.contains_key(name);
            let next = names.iter().find(|name| {
                let mut waits = compose.service(name).waits_for().into_iter();
                let waits = waits.all(|(other, required)| {
                    is_running(&stack, other) || !required && !names.contains(&other)
                });
                waits && !is_running(&stack, name)
            });
            stack.start(next.expect("services wait for each other in a circle"));
        }
        stack
    }

    /// Its health check fails before it is there, and succeeds soon after it is.
    fn start(&mut self, name: &'a str) {
        let service = self.compose.service(name);
        let idle = Container::start_idle(&self.network, service);
        assert!(idle.check_health(SHORTLY).is_err(), "{name} is healthy without being there");
        drop(idle);
        let mut container = Container::start(&self.network, service);
        container.wait_until_healthy();
        self.running.insert(name, container);
    }

    /// `kill -9` of the whole container, and a new one on its volumes.
    fn replace(&mut self, name: &'a str) {
        drop(self.running.remove(name));
        self.start(name);
    }

    /// What a command line of the README answers, on a machine where the gateway's port is published.
    fn curl(&self, line: &str) -> Result<Value, String> {
        assert!(line.starts_with("curl ") && line.contains(" http://127.0.0.1:8080/"), "{line}");
        let gateway = self.network.address("gateway");
        let published = format!("command curl --fail-with-body --max-time 20 --connect-to ::{gateway}:8080");
        let said = self.network.run(&format!("curl() {{ {published} \"$@\"; }}\n{line}"))?;
        serde_json::from_str(&said).map_err(|error| format!("{line}: {error}: {said}"))
    }

    /// Ready is not enough: the gateway has to reach everything that it is told to use.
    fn wait_until_nothing_is_missing(&self) {
        eventually(|| {
            let said = self.running["gateway"].check_health(SHORTLY).ok()?;
            let state: Value = serde_json::from_str(said.split_once(": ")?.1).unwrap();
            let parts =
                [&state["ledger"], &state["policies"], &state["quotaAccelerator"], &state["bus"]["status"]];
            parts.into_iter().all(|part| part == "ready").then_some(())
        });
    }

    fn wait_until_sent(&self, id: &str) {
        let sent = |name: &str| self.running[name].said().contains(&format!("SMS SENT id={id} user=alice"));
        eventually(|| sent("sender").then_some(()));
        assert!(!sent("gateway"));
    }
}

fn documented() -> (String, String) {
    let readme = text_of("README.md");
    let section = readme.split(HEADING).nth(1).unwrap();
    let mut lines = section.lines().filter(|line| line.starts_with("curl "));
    (lines.next().unwrap().to_owned(), lines.next().unwrap().to_owned())
}

/// Namespaces and mounts are root's.
fn can_be_run() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    let root = id.stdout.trim_ascii() == b"0";
    if !root {
        eprintln!("not root: compose.yaml was looked at, and its services were not started");
    }
    root
}

#[test]
fn the_stack_starts_sends_and_starts_again_on_its_volumes() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if !can_be_run() {
        return;
    }
    program("curl", "curl").unwrap();
    let compose = Compose::read(&[]);
    let mut stack = Stack::up(&compose, &[]);
    stack.wait_until_nothing_is_missing();
    let (configure, send) = documented();
    assert_eq!(stack.curl(&configure).unwrap()["remaining"], 5);
    let sent = stack.curl(&send).unwrap();
    let id = sent["id"].as_str().unwrap().to_owned();
    stack.wait_until_sent(&id);

    for engine in ["redis", "kafka", "postgres"] {
        stack.replace(engine);
    }
    for ours in ["gateway", "sender"] {
        stack.running.get_mut(ours).unwrap().wait_until_healthy();
    }
    stack.wait_until_nothing_is_missing();
    // A connection or two of the gateway may still have to find out.
    let look_up = send.split(" -d ").next().unwrap().replace("/api/send", &format!("/api/v1/messages/{id}"));
    let kept = eventually(|| stack.curl(&look_up).ok());
    assert_eq!((&kept["status"], &kept["message"]), (&"delivered".into(), &"hello".into()), "{kept}");
    let again = eventually(|| stack.curl(&send).ok());
    stack.wait_until_sent(again["id"].as_str().unwrap());
    for ours in ["gateway", "sender"] {
        stack.running.remove(ours).unwrap().stop();
    }
}

#[test]
fn the_stack_sends_by_rabbitmq_too() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if !can_be_run() {
        return;
    }
    program("curl", "curl").unwrap();
    let compose = Compose::read(&[("TIDEGATE_BUS__KIND", "rabbitmq")]);
    let stack = Stack::up(&compose, &["rabbitmq"]);
    stack.wait_until_nothing_is_missing();
    let (configure, send) = documented();
    stack.curl(&configure).unwrap();
    stack.wait_until_sent(stack.curl(&send).unwrap()["id"].as_str().unwrap());
}

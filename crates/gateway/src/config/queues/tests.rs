use std::path::PathBuf;

use super::*;
use crate::config::{Loaded, Problems, Sources};

fn load(text: &str) -> Result<QueuesSettings, Problems> {
    let file = Some((PathBuf::from("tidegate.toml"), text.to_owned()));
    Loaded::from_sources(&Sources { file, ..Sources::default() }).map(|loaded| loaded.settings.queues)
}

fn name(text: &str) -> QueueName {
    QueueName::new(text).unwrap()
}

#[test]
fn sms_is_there_unnamed_and_goes_to_the_log() {
    let queues = load("").unwrap();
    let pushed: Vec<_> = queues.pushed().map(|(name, channel, _)| (name.as_str(), channel)).collect();
    assert_eq!(pushed, [("sms", ChannelKind::Log)]);
    assert_eq!(queues.of(&name("anything")).outlet, Outlet::Pull(PullMode::Consume));
    assert_eq!(queues.of(&name("anything")).retention_ms, None);
}

#[test]
fn a_named_queue_takes_what_it_does_not_say_from_the_defaults() {
    let queues = load(
        "[queue]\nattempts_max = 7\nretention_minutes = 2\nhigher_per_lower = 6\n[[queues]]\nname = \"jobs\"\n\
         mode = \"reserve\"\npending_max = 10\n[[queues]]\nname = \"hooks\"\nchannel = \"log\"\norder = \"best-effort\"\n\
         higher_per_lower = 3\n",
    )
    .unwrap();
    let (jobs, hooks) = (queues.of(&name("jobs")), queues.of(&name("hooks")));
    assert_eq!((jobs.outlet, jobs.attempts_max), (Outlet::Pull(PullMode::Reserve), 7));
    assert_eq!((jobs.retention_ms, jobs.rule.pending_max), (Some(120_000), 10));
    assert_eq!((hooks.attempts_max, hooks.rule.order), (5, Order::BestEffort));
    let shares = [jobs, hooks, queues.of(&name("anything"))].map(|queue| queue.rule.higher_per_lower);
    assert_eq!(shares, [6, 3, 6]);
    assert_eq!(queues.pushed().count(), 2);
}

#[test]
fn an_inbox_keeps_the_order_of_its_recipients() {
    let text = |own: &str| {
        format!(
            "[inbox]\nsecrets = [\"0123456789abcdef\"]\n[queue]\norder = \"best-effort\"\n\
             [[queues]]\nname = \"devices\"\nchannel = \"inbox\"\n{own}"
        )
    };
    assert_eq!(load(&text("")).unwrap().of(&name("devices")).rule.order, Order::Strict);
    let problems = load(&text("order = \"best-effort\"\n")).unwrap_err().to_string();
    assert!(problems.contains("tidegate.toml:8: queues.order: does not go with the channel"), "{problems}");
}

#[test]
fn every_fault_of_a_queue_is_named_with_its_line() {
    let text = "[[queues]]
name = \"a b\"
channel = \"smoke\"
colour = \"red\"
[[queues]]
name = \"jobs\"
channel = \"log\"
mode = \"reserve\"
lease_ms = 5
[[queues]]
name = \"sms\"
channel = \"log\"
lease_ms = 2000
pending_max = 10
pending_hard_max = 5
[[queues]]
name = \"sms\"
order = \"strickt\"
[[queues]]
mode = 1
";
    let Err(problems) = load(text) else { panic!("it was taken") };
    let found: Vec<_> = problems.0.iter().map(ToString::to_string).collect();
    for part in [
        "tidegate.toml:2: queues.name: must be 1 to 64 letters",
        "tidegate.toml:3: queues.channel: \"smoke\" is not known; choose \"log\"",
        "tidegate.toml:4: queues.colour: no such key",
        "tidegate.toml:8: queues.mode: does not go with a channel",
        "tidegate.toml:9: queues.lease_ms: 5 is no whole number in range",
        "tidegate.toml:13: queues.lease_ms: 2000 does not outlast",
        "tidegate.toml:15: queues.pending_hard_max: 5 is below pending_max (10)",
        "tidegate.toml:18: queues.order: \"strickt\" is not known",
        "tidegate.toml:19: queues.name: is missing",
        "tidegate.toml:20: queues.mode: 1 is not known",
    ] {
        assert!(found.iter().any(|problem| problem.contains(part)), "{part}\nnot in {found:#?}");
    }
    let twice = load("[[queues]]\nname = \"a\"\n[[queues]]\nname = \"a\"\n").unwrap_err().to_string();
    assert!(twice.contains("tidegate.toml:4: queues.name: \"a\" is there twice"), "{twice}");
}

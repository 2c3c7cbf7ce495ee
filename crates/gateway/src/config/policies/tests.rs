use std::path::PathBuf;

use tidegate_domain::limits::FailStrategy;

use super::*;
use crate::config::{Loaded, Sources};

fn load(text: &str) -> Result<Vec<Policy>, Vec<String>> {
    let file = Some((PathBuf::from("tidegate.toml"), text.to_owned()));
    match Loaded::from_sources(&Sources { file, ..Sources::default() }) {
        Ok(loaded) => Ok(loaded.settings.policies),
        Err(problems) => Err(problems.0.iter().map(ToString::to_string).collect()),
    }
}

#[test]
fn a_policy_is_read_in_either_spelling() {
    let camel = "[[policies]]\nname = \"a\"\npathPattern = \"/api/**\"\nkeyStrategy = \"HEADER\"\nheader = \"X-Tenant\"\n\
        missingKey = \"refuse\"\ncapacity = 10\nrefillTokensPerSecond = 0.5\ncost = 2\nmethods = [\"post\"]\n\
        failStrategy = \"FAIL_CLOSED\"\nshadow = true\n";
    let snake = "[[policies]]\nname = \"a\"\npath_pattern = \"/api/**\"\nkey_strategy = \"HEADER\"\nheader = \"x-tenant\"\n\
        missing_key = \"refuse\"\ncapacity = 10\nrefill_tokens_per_second = 0.5\ncost = 2\nmethods = [\"POST\"]\n\
        fail_strategy = \"FAIL_CLOSED\"\nshadow = true\n";
    let policies = load(camel).unwrap();
    assert_eq!(policies, load(snake).unwrap());
    let policy = &policies[0];
    assert_eq!(policy.key, KeyStrategy::Header { name: "x-tenant".into(), missing: MissingKey::Refuse });
    assert_eq!((policy.rule.capacity(), policy.rule.cost(), policy.rule.shadow()), (10, 2, true));
    assert_eq!((policy.fail, policy.methods.clone()), (FailStrategy::Closed, Some(vec!["POST".to_owned()])));
}

#[test]
fn what_is_left_out_has_a_default() {
    let text = "[[policies]]\nname = \"a\"\npathPattern = \"/**\"\nkeyStrategy = \"IP\"\ncapacity = 5\nrefillTokensPerSecond = 1\n";
    let policy = &load(text).unwrap()[0];
    assert_eq!((policy.fail, policy.rule.cost(), policy.rule.shadow()), (FailStrategy::Open, 1, false));
    assert_eq!((&policy.key, &policy.methods), (&KeyStrategy::Ip, &None));
}

#[test]
fn every_fault_is_named_with_its_line_and_fix() {
    let text = "
[server]
trusted_proxies = [\"10.0.0.1/8\", \"x\"]
[limits]
rate_limit_headers = \"draft-10\"
ipv6_prefix = 0
[[policies]]
name = \"a b\"
pathPattern = \"api\"
keyStrategy = \"APIKEY\"
capacity = 0
refillTokensPerSecond = \"fast\"
colour = \"red\"
[[policies]]
name = \"twice\"
pathPattern = \"/api/{id}\"
keyStrategy = \"HEADER\"
capacity = 5
cost = 6
refillTokensPerSecond = 1
methods = []
failStrategy = \"OPEN\"
missingKey = \"drop\"
shadow = \"yes\"
[[policies]]
keyStrategy = \"IP\"
missingKey = \"refuse\"
header = \"Cookie\"
capacity = 5
refillTokensPerSecond = -1.5
";
    let found = load(text).unwrap_err();
    for part in [
        "tidegate.toml:3: server.trusted_proxies: \"10.0.0.1/8\" has bits set beyond its prefix",
        "tidegate.toml:3: server.trusted_proxies: \"x\" is not a network",
        "tidegate.toml:5: limits.rate_limit_headers: \"draft-10\" is not known",
        "tidegate.toml:6: limits.ipv6_prefix: 0 is out of range",
        "tidegate.toml:8: policies.name",
        "tidegate.toml:9: policies.pathPattern: a path pattern starts with '/'",
        "tidegate.toml:10: policies.keyStrategy: \"APIKEY\" is not known; choose \"API_KEY\" or",
        "did you mean \"API_KEY\"?",
        "tidegate.toml:12: policies.refillTokensPerSecond: must be a number",
        "tidegate.toml:13: policies.colour: no such key",
        "tidegate.toml:16: policies.pathPattern: braces",
        "tidegate.toml:14: policies.header: is missing",
        "tidegate.toml:21: policies.methods",
        "tidegate.toml:22: policies.failStrategy: \"OPEN\" is not known; choose \"FAIL_OPEN\" or \"FAIL_CLOSED\"",
        "tidegate.toml:23: policies.missingKey",
        "tidegate.toml:24: policies.shadow: must be true or false",
        "tidegate.toml:25: policies.name: is missing",
        "tidegate.toml:25: policies.pathPattern: is missing",
        "tidegate.toml:27: policies.missingKey: goes with",
        "tidegate.toml:28: policies.header: Cookie holds secrets",
        "tidegate.toml:30: policies.refillTokensPerSecond: a refill of -1.5",
    ] {
        assert!(found.iter().any(|problem| problem.contains(part)), "{part}\nnot in {found:#?}");
    }
    let rule = |more: &str| {
        let base = "[[policies]]\nname = \"a\"\npathPattern = \"/**\"\nkeyStrategy = \"IP\"\nrefillTokensPerSecond = 1\n";
        load(&format!("{base}{more}")).unwrap_err().join("\n")
    };
    assert!(rule("capacity = 5\ncost = 6\n").contains("policies.cost: a cost of 6 never fits"));
    assert!(rule("capacity = 0\n").contains("policies.capacity: a capacity of 0"));
    assert!(
        rule("capacity = 5\npath_pattern = \"/x\"\n")
            .contains("is there twice, as pathPattern and as path_pattern")
    );
}

#[test]
fn names_are_unique_and_the_environment_can_not_hold_policies() {
    let one = "[[policies]]\nname = \"a\"\npathPattern = \"/**\"\nkeyStrategy = \"IP\"\ncapacity = 5\nrefillTokensPerSecond = 1\n";
    assert!(load(&format!("{one}{one}")).unwrap_err()[0].contains("\"a\" is there twice"));
    assert!(load("policies = 3\n").unwrap_err()[0].contains("write [[policies]]"));
    let variables = |variable: &str, value: &str| Sources {
        environment: vec![(variable.to_owned(), value.to_owned())],
        ..Sources::default()
    };
    let refused = Loaded::from_sources(&variables("TIDEGATE_POLICIES__A", "1")).unwrap_err();
    assert!(refused.to_string().contains("policies can only be set in a file"));
    let listed = variables("TIDEGATE_SERVER__TRUSTED_PROXIES", "10.0.0.0/8, ::1");
    assert_eq!(Loaded::from_sources(&listed).unwrap().settings.gate.trusted_proxies.len(), 2);
}

#[test]
fn a_policy_may_fall_back_to_a_share() {
    let with = |more: &str| {
        let base = "[[policies]]\nname = \"a\"\npathPattern = \"/**\"\nkeyStrategy = \"IP\"\ncapacity = 10\n\
            refillTokensPerSecond = 4\n";
        load(&format!("{base}{more}"))
    };
    let share = |more: &str| match with(&format!("failStrategy = \"FALL_BACK\"\n{more}")).unwrap()[0].fail {
        FailStrategy::FallBack(share) => (share.capacity(), share.full_after_ns()),
        other => panic!("{other:?}"),
    };
    let full_in = 2_500_000_000;
    assert_eq!(share(""), (5, full_in));
    assert_eq!(share("fallBackShare = 0.2\n"), (2, full_in));
    assert_eq!(share("fall_back_share = 1\n"), (10, full_in));
    assert_eq!(share("fallBackShare = 0.3\ncost = 3\n").0, 3);
    for (more, part) in [
        (
            "failStrategy = \"FALL_BACK\"\nfallBackShare = 0\n",
            "tidegate.toml:8: policies.fallBackShare: must be",
        ),
        ("failStrategy = \"FALL_BACK\"\nfallBackShare = 1.5\n", "above 0 and up to 1"),
        (
            "cost = 3\nfailStrategy = \"FALL_BACK\"\nfallBackShare = 0.25\n",
            "tidegate.toml:9: policies.fallBackShare: leaves 2 tokens of 10, and a request costs 3; raise it",
        ),
        ("failStrategy = \"FALL_BACK\"\nfallBackShare = 0.05\n", "leaves 0 tokens of 10"),
        ("fallBackShare = 0.5\n", "goes with failStrategy = \"FALL_BACK\""),
        ("failStrategy = \"FALLBACK\"\n", "choose \"FAIL_OPEN\" or \"FAIL_CLOSED\" or \"FALL_BACK\""),
    ] {
        assert!(with(more).unwrap_err()[0].contains(part), "{more}: {:?}", with(more));
    }
}

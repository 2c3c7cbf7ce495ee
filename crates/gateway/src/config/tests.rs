use std::path::PathBuf;

use tidegate_domain::Durability;

use super::*;

fn file(text: &str) -> Sources {
    Sources { file: Some((PathBuf::from("tidegate.toml"), text.to_owned())), ..Sources::default() }
}

/// What a file with this text comes to, or all of its problems.
pub fn load(text: &str) -> Result<Loaded, String> {
    Loaded::from_sources(&file(text)).map_err(|problems| problems.to_string())
}

fn with_variable(mut sources: Sources, variable: &str, value: &str) -> Sources {
    sources.environment.push((variable.to_owned(), value.to_owned()));
    sources
}

fn problems(sources: &Sources) -> Vec<String> {
    match Loaded::from_sources(sources) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.0.iter().map(ToString::to_string).collect(),
    }
}

fn sync_of(loaded: &Loaded) -> Durability {
    let LedgerSettings::Embedded(embedded) = &loaded.settings.ledger else { panic!("{loaded:?}") };
    embedded.sync
}

#[test]
fn defaults_stand_on_their_own_and_listen_on_loopback() {
    let loaded = Loaded::from_sources(&Sources::default()).unwrap();
    assert_eq!(loaded.settings.listen, "127.0.0.1:8080".parse().unwrap());
    assert_eq!(sync_of(&loaded), Durability::Fsync);
    assert!(loaded.changed.is_empty());
}

#[test]
fn the_file_yields_to_the_environment_and_both_to_flags() {
    let mut sources =
        file("[server]\nlisten = \"127.0.0.1:1\"\n[sender]\nbatch = 7\n[ledger]\nsync = \"full\"\n");
    sources = with_variable(sources, "TIDEGATE_LEDGER__SYNC", "off");
    sources = with_variable(sources, "TIDEGATE_SERVER__LISTEN", "127.0.0.1:2");
    sources.flags.push(("--listen", "server.listen", "localhost:3".to_owned()));
    let loaded = Loaded::from_sources(&sources).unwrap();
    assert_eq!(loaded.settings.listen, "127.0.0.1:3".parse().unwrap());
    assert_eq!((sync_of(&loaded), loaded.settings.sender.batch), (Durability::OsBuffer, 7));
    let origins: Vec<_> =
        loaded.changed.iter().map(|changed| format!("{} {}", changed.key, changed.origin)).collect();
    assert_eq!(
        origins,
        [
            "ledger.sync environment TIDEGATE_LEDGER__SYNC",
            "sender.batch tidegate.toml:4",
            "server.listen flag --listen"
        ]
    );
}

#[test]
fn all_problems_are_named_at_once_each_with_place_key_and_fix() {
    let text = "
[server]
lisen = \"127.0.0.1:80\"
connections_max = 0
header_bytes_max = \"big\"
[ledgr]
path = \"x\"
[ledger]
sync = \"fulll\"
retention_ms = 5000
[sender]
lease_ms = 9000
";
    let sources = with_variable(file(text), "TIDEGATE_SENDER__BATCH", "many");
    let sources = with_variable(sources, "TIDEGATE_SENDER__LEASE", "1");
    let found = problems(&sources);
    let expected = [
        "tidegate.toml:3: server.lisen: no such key; did you mean \"server.listen\"?",
        "tidegate.toml:4: server.connections_max: 0 is out of range; choose 1 to 1000000",
        "tidegate.toml:5: server.header_bytes_max: must be a whole number, not text in quotes; such as 16384",
        "tidegate.toml:6: ledgr: no such section; did you mean \"ledger\"?",
        "tidegate.toml:9: ledger.sync: \"fulll\" is not known; choose \"full\" or \"off\"; did you mean \"full\"?",
        "environment TIDEGATE_SENDER__BATCH: sender.batch: must be a whole number, not \"many\"; such as 1024",
        "environment TIDEGATE_SENDER__LEASE: no such setting; did you mean \"TIDEGATE_SENDER__LEASE_MS\"?",
    ];
    for line in expected {
        assert!(found.iter().any(|problem| problem == line), "{line}\nnot in {found:#?}");
    }
    for start in
        ["tidegate.toml:10: ledger.retention_ms: 5000 is shorter", "tidegate.toml:12: sender.lease_ms: 9000"]
    {
        assert!(found.iter().any(|problem| problem.starts_with(start)), "{start}\nnot in {found:#?}");
    }
    assert_eq!(found.len(), 9, "{found:#?}");
}

#[test]
fn broken_toml_is_named_with_line_and_column() {
    let found = problems(&file("[server]\nlisten = \n"));
    assert!(found[0].starts_with("tidegate.toml:2:10: not valid TOML: "), "{found:#?}");
}

#[test]
fn other_machines_are_let_in_only_with_principals() {
    let open = file("[server]\nlisten = \"0.0.0.0:8080\"\n");
    let found = problems(&open);
    assert!(found[0].contains("no principals are configured; add [[principals]]"), "{found:#?}");
    let hash = "a".repeat(64);
    let text = format!(
        "[server]\nlisten = \"0.0.0.0:8080\"\n[[principals]]\nname = \"ops\"\nrole = \"ADMIN\"\napi_key_hashes = [\"{hash}\"]\n"
    );
    let loaded = Loaded::from_sources(&file(&text)).unwrap();
    assert_eq!(loaded.settings.principals.len(), 1);
    assert_eq!(loaded.changed[1].value, "\"ops\"");
}

#[test]
fn every_fault_of_a_principal_is_named_and_no_secret_is_shown() {
    let text = "
[[principals]]
name = \"a:b\"
role = \"ROOT\"
password_hash = \"hunter2\"
colour = \"red\"
[[principals]]
name = \"x\"
role = \"USER\"
api_key_hashes = [\"tg_secret\"]
[[principals]]
name = \"x\"
role = \"USER\"
";
    let found = problems(&file(text));
    for part in [
        "tidegate.toml:3: principals.name",
        "tidegate.toml:4: principals.role",
        "tidegate.toml:5: principals.password_hash",
        "tidegate.toml:6: principals.colour: no such key",
        "tidegate.toml:10: principals.api_key_hashes",
        "tidegate.toml:11: principals: has neither",
        "\"x\" is there twice",
    ] {
        assert!(found.iter().any(|problem| problem.contains(part)), "{part}\nnot in {found:#?}");
    }
    assert!(!found.iter().any(|problem| problem.contains("hunter2") || problem.contains("tg_secret")));
}

#[test]
fn a_level_that_is_none_does_not_silence_the_logs() {
    for level in ["loud", "info,loud", "inf0"] {
        let found = problems(&file(&format!("[log]\nlevel = \"{level}\"\n")));
        assert!(matches!(&found[..], [problem] if problem.contains("is not a level")), "{found:?}");
    }
    for level in ["info", "WARN", "info,tidegate_edge=debug", "off"] {
        assert_eq!(problems(&file(&format!("[log]\nlevel = \"{level}\"\n"))), [""; 0], "{level}");
    }
}

/// Beside a Service named "tidegate", Kubernetes gives these to every container.
#[test]
fn variables_that_are_not_meant_as_settings_are_ignored_with_a_warning() {
    let mut sources = Sources::default();
    for (variable, value) in [
        ("TIDEGATE_SERVICE_HOST", "10.96.0.7"),
        ("TIDEGATE_SERVICE_PORT", "8080"),
        ("TIDEGATE_SERVICE_PORT_HTTP", "8080"),
        ("TIDEGATE_PORT", "tcp://10.96.0.7:8080"),
        ("TIDEGATE_PORT_8080_TCP", "tcp://10.96.0.7:8080"),
        ("TIDEGATE_PORT_8080_TCP_ADDR", "10.96.0.7"),
        ("TIDEGATE_QUEUES_SERVICE_HOST", "10.96.0.8"),
        ("TIDEGATE_LEDGER_SYNC", "off"),
    ] {
        sources = with_variable(sources, variable, value);
    }
    let loaded = Loaded::from_sources(&sources).unwrap();
    assert_eq!((sync_of(&loaded), loaded.changed.len()), (Durability::Fsync, 0));
    let warnings: Vec<_> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 8, "{warnings:#?}");
    assert_eq!(
        warnings[3],
        "environment TIDEGATE_PORT: is no setting, and is ignored; a setting is TIDEGATE_SECTION__KEY"
    );
    assert!(warnings[7].ends_with("did you mean \"TIDEGATE_LEDGER__SYNC\"?"), "{warnings:#?}");
    let slip = problems(&with_variable(Sources::default(), "TIDEGATE_SERVICE__HOST", "x"));
    assert!(slip[0].starts_with("environment TIDEGATE_SERVICE__HOST: no such setting"), "{slip:?}");
}

/// No setting is forgotten: each of the reference is told with its line, whatever is wrong with it, and nothing else is.
#[test]
fn every_setting_of_the_reference_is_checked() {
    let reference: toml::Table = toml::from_str(DEFAULT).unwrap();
    let only = |text: &str, start: &str| {
        let found = problems(&file(text));
        assert!(
            matches!(&found[..], [one] if one.starts_with(start) && one.contains("; ")),
            "{text}{found:#?}"
        );
    };
    for (section, keys) in reference {
        only(
            &format!("{section} = 5\n"),
            &format!("tidegate.toml:1: {section}: is a section, not a key; write"),
        );
        for (key, value) in keys.as_table().unwrap() {
            let place = format!("tidegate.toml:2: {section}.{key}");
            let with = |value: &str| format!("[{section}]\n{key} = {value}\n");
            let wrong_type = if value.is_str() { "5" } else { "\"five\"" };
            only(&with(wrong_type), &format!("{place}: must be "));
            only(&with("{ a = 1 }"), &format!("{place}: must be "));
            only(&format!("[{section}]\n{key}x = 5\n"), &format!("{place}x: no such key; did you mean"));
            if value.is_integer() {
                only(&with("-1"), &format!("{place}: -1 is out of range; choose"));
                only(&with("9223372036854775807"), &format!("{place}: 9223372036854775807 is out of range"));
            }
            if value.is_array() {
                only(&with("[5]"), &format!("{place}: must be a list of texts in quotes"));
            }
        }
    }
}

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use crate::file::{Compose, text_of, words};

const ENGINES: [&str; 4] = ["kafka", "postgres", "rabbitmq", "redis"];

#[test]
fn images_come_from_wherever_the_engine_looks_and_say_their_version() {
    for service in Compose::read(&[]).services() {
        let image = service.image();
        let (place, name) = image.rsplit_once('/').unwrap_or(("", image));
        assert!(!place.contains(['.', ':', '/']) && place != "localhost", "{image} names a registry");
        let version = name.split_once(':').map(|(_, version)| version);
        let numbered =
            version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()));
        assert!(service.is_ours() || numbered, "{image} has no version");
    }
    let dockerfile = text_of("Dockerfile");
    let images = dockerfile.lines().filter_map(|line| line.strip_prefix("FROM "));
    assert!(images.into_iter().all(|image| !image.contains('/')), "{dockerfile}");
}

#[test]
fn every_service_is_checked_and_comes_back_by_itself() {
    for service in Compose::read(&[]).services() {
        assert!(!service.health_check().is_empty());
        let check = &service.value["healthcheck"];
        for key in ["interval", "timeout", "start_period"] {
            assert!(service.duration(&check[key]) > Duration::ZERO, "{}: {key}", service.name);
        }
        assert_eq!(service.value["restart"], "unless-stopped", "{}", service.name);
    }
}

#[test]
fn data_is_in_named_volumes() {
    let compose = Compose::read(&[]);
    let mut used = BTreeSet::new();
    for service in compose.services() {
        let mounts = service.mounts();
        let named: Vec<_> = mounts.iter().filter(|mount| !mount.source.starts_with(['.', '/'])).collect();
        assert_eq!(named.len(), 1, "{}", service.name);
        assert!(!named[0].read_only && used.insert(named[0].source.clone()), "{}", service.name);
        // Whatever comes from this directory can't be changed from inside.
        assert!(mounts.iter().all(|mount| mount.read_only || mount.source == named[0].source));
    }
    assert_eq!(used, compose.volumes().into_iter().map(str::to_owned).collect());
}

#[test]
fn this_machine_alone_reaches_the_gateway_and_nobody_anything_else() {
    for service in Compose::read(&[]).services() {
        let ports = words(&service.value["ports"]);
        match service.name {
            "gateway" => assert_eq!(ports, ["127.0.0.1:8080:8080"]),
            other => assert!(ports.is_empty(), "{other}: {ports:?}"),
        }
        assert_eq!(service.value.get("network_mode"), None);
        assert_ne!(service.value["privileged"], true);
    }
}

#[test]
fn gateway_and_sender_wait_for_healthy_engines() {
    let compose = Compose::read(&[]);
    let ours: Vec<_> = compose.services().into_iter().filter(|service| service.is_ours()).collect();
    assert_eq!(ours.iter().map(|service| service.name).collect::<Vec<_>>(), ["gateway", "sender"]);
    for service in ours {
        let waits: BTreeSet<_> = service.waits_for().into_iter().collect();
        // What is there with a profile only can't be waited for without it.
        let expected = ENGINES.map(|name| (name, compose.service(name).profiles().is_empty()));
        assert_eq!(waits, expected.into());
        assert!(waits.contains(&("rabbitmq", false)));
        let grace = service.duration(&service.value["stop_grace_period"]);
        assert!(grace > Duration::from_secs(20), "shorter than server.drain_timeout_ms: {grace:?}");
        assert_eq!(
            (&service.value["read_only"], &service.value["cap_drop"][0]),
            (&true.into(), &"ALL".into())
        );
    }
}

#[test]
fn gateway_and_sender_can_use_what_they_are_told() {
    for bus in ["kafka", "rabbitmq"] {
        let compose = Compose::read(&[("TIDEGATE_BUS__KIND", bus)]);
        for service in compose.services().into_iter().filter(|service| service.is_ours()) {
            let dir = tempfile::tempdir().unwrap();
            for mount in service.mounts().iter().filter(|mount| mount.target.starts_with("/data/")) {
                let name = mount.target.strip_prefix("/data/").unwrap();
                std::fs::write(dir.path().join(name), text_of(&mount.source)).unwrap();
            }
            let mut check = Command::new(env!("CARGO_BIN_EXE_tidegate"));
            check.env_clear().envs(service.environment()).current_dir(dir.path());
            let command = service.command();
            assert_eq!(command[0], "serve");
            let output = check.arg("check-config").args(&command[1..]).output().unwrap();
            let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert!(output.status.success(), "{}: {said}", service.name);
            for part in [format!("bus.kind = \"{bus}\""), format!("server.role = \"{}\"", service.name)] {
                assert!(said.contains(&part), "{part} is not in {said}");
            }
        }
    }
}

#[test]
fn the_image_is_built_with_our_toolchain_and_runs_as_nobody_in_particular() {
    let (dockerfile, toolchain) = (text_of("Dockerfile"), text_of("rust-toolchain.toml"));
    let version = toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap();
    let build = format!("FROM rust:{}-", version.trim_matches('"'));
    assert!(dockerfile.lines().any(|line| line.starts_with(&build)), "{build}");
    let last = dockerfile.rsplit("\nFROM ").next().unwrap();
    for line in
        ["USER 10001:10001", "WORKDIR /data", "VOLUME /data", "EXPOSE 8080", "ENTRYPOINT [\"tidegate\"]"]
    {
        assert!(last.lines().any(|known| known == line), "{line}");
    }
    assert!(last.contains("HEALTHCHECK ") && last.contains("CMD [\"tidegate\", \"health\"]"));
}

/// What every Debian has that runs programs in C.
const BASE: [&str; 5] = ["linux-vdso.so", "ld-linux", "libc.so", "libm.so", "libgcc_s.so"];

#[test]
fn the_image_has_the_libraries_that_the_program_needs() {
    let output = Command::new("ldd").arg(env!("CARGO_BIN_EXE_tidegate")).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let names = said.lines().filter_map(|line| line.split_whitespace().next());
    let names = names.map(|path| path.rsplit('/').next().unwrap());
    let dockerfile = text_of("Dockerfile");
    let last = dockerfile.rsplit("\nFROM ").next().unwrap();
    for name in names.filter(|name| !BASE.iter().any(|base| name.starts_with(base))) {
        let copied =
            last.lines().any(|line| line.starts_with("COPY ") && line.contains(&format!("/{name} ")));
        assert!(copied, "{name} is not in the image");
    }
}

//! What is looked at without running anything: formatting, lints, dependencies, compose.yaml.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::command::{captured, cargo, cargo_command, root, run, target};
use crate::unused;

const DENY: &str = "cargo-deny";
const DENY_VERSION: &str = "0.20.2";
const SCHEMA_CHECKER: &str = "check-jsonschema";
const SCHEMA_CHECKER_VERSION: &str = "0.39.0";

pub fn all() -> Result<(), String> {
    formatting()?;
    dependencies()?;
    compose()?;
    run(lints())
}

pub fn formatting() -> Result<(), String> {
    cargo(&["fmt", "--all", "--check"])
}

pub fn lints() -> Command {
    cargo_command(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])
}

/// None unused; licences, banned crates and sources by deny.toml; advisories where their database can be had.
pub fn dependencies() -> Result<(), String> {
    unused::check()?;
    let deny = deny_program()?;
    let check = |what: &[&str]| {
        let mut command = Command::new(&deny);
        command
            .args(["--all-features", "--log-level", "error", "check", "--hide-inclusion-graph"])
            .args(what);
        command.current_dir(root());
        command
    };
    run(check(&["licenses", "bans", "sources"]))?;
    let (passed, said) = captured(check(&["advisories"]))?;
    if !passed && said.contains("failed to fetch advisory database") {
        println!("left out: advisories and yanked versions: their database can't be fetched");
        return Ok(());
    }
    print!("{said}");
    if passed { Ok(()) } else { Err("a dependency has a known defect, or was yanked".to_owned()) }
}

/// compose.yaml against the schema of its specification.
pub fn compose() -> Result<(), String> {
    let mut check = Command::new(schema_checker()?);
    check.args(["-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml"]);
    check.current_dir(root());
    run(check)
}

/// Installed once per build directory, unoptimised: it runs for seconds.
fn deny_program() -> Result<PathBuf, String> {
    let place = installed(DENY, DENY_VERSION, |place| {
        let version = ["--version", DENY_VERSION, "--locked", "--debug", "--quiet", "--root"];
        let mut install = cargo_command(&["install", DENY]);
        install.args(version).arg(place).arg("--target-dir").arg(place.join("build"));
        run(install)?;
        // Ten times as large as the program.
        let _ = fs::remove_dir_all(place.join("build"));
        Ok(())
    })?;
    Ok(place.join("bin").join(DENY))
}

/// A Python with the checker.
fn schema_checker() -> Result<PathBuf, String> {
    let place = installed(SCHEMA_CHECKER, SCHEMA_CHECKER_VERSION, |place| {
        let mut make = Command::new("python3");
        make.args(["-m", "venv", "--clear"]).arg(place);
        run(make).map_err(|problem| format!("{problem}; Debian has what is missing in python3-venv"))?;
        let mut install = Command::new(place.join("bin/python"));
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        install.arg(format!("{SCHEMA_CHECKER}=={SCHEMA_CHECKER_VERSION}"));
        run(install)
    })?;
    Ok(place.join("bin/python"))
}

/// The tool's directory in the build directory, after `install` has filled it.
fn installed(
    tool: &str,
    version: &str,
    install: impl FnOnce(&PathBuf) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let place = target().join("tools").join(format!("{tool}-{version}"));
    // Written last: without it the installation was interrupted.
    let complete = place.join("complete");
    if !complete.is_file() {
        install(&place)?;
        fs::write(&complete, "").map_err(|error| format!("{}: {error}", complete.display()))?;
    }
    Ok(place)
}

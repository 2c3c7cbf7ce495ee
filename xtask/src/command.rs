use std::path::{Path, PathBuf};
use std::process::Command;

pub fn cargo(args: &[&str]) -> Result<(), String> {
    cargo_with(args, &[])
}

pub fn cargo_with(args: &[&str], variables: &[(&str, &str)]) -> Result<(), String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    run(Command::new(program).args(args).envs(variables.iter().copied()).current_dir(root()))
}

/// The release binary of the trials.
pub fn trials(trial: &str, args: &[String]) -> Result<(), String> {
    run(Command::new(target().join("release/tidegate-trials")).arg(trial).args(args))
}

pub fn run(command: &mut Command) -> Result<(), String> {
    let line = describe(command);
    println!("$ {line}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{line}: {status}")),
        Err(error) => Err(format!("{line}: {error}")),
    }
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Where everything is built, and kept that is fetched for it.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

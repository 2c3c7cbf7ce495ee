use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub fn cargo(args: &[&str]) -> Result<(), String> {
    run(cargo_command(args))
}

/// A cargo to be started at the root of the workspace.
///
/// The cargo that runs this program describes this program in variables. Build scripts that look at those would run
/// again, and with them most of the workspace, each time that this command and a plain `cargo build` take turns.
pub fn cargo_command(args: &[&str]) -> Command {
    let mut command = Command::new(cargo_program());
    command.args(args).current_dir(root());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

fn cargo_program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// The trials as packages would hold them.
pub fn trials(trial: &str, args: &[String]) -> Result<(), String> {
    let mut command = Command::new(target().join("dist/tidegate-trials"));
    command.arg(trial).args(args);
    run(command)
}

pub fn run(mut command: Command) -> Result<(), String> {
    let line = describe(&command);
    println!("$ {line}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{line}: {status}")),
        Err(error) => Err(format!("{line}: {error}")),
    }
}

/// Whether the command succeeded, and all that it printed.
pub fn captured(mut command: Command) -> Result<(bool, String), String> {
    let line = describe(&command);
    println!("$ {line}");
    let output = command.output().map_err(|error| format!("{line}: {error}"))?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

/// What the command prints to standard output; what it says beside goes on to the terminal.
pub fn output(mut command: Command) -> Result<String, String> {
    let line = describe(&command);
    println!("$ {line}");
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| format!("{line}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{line}: {}", output.status)),
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

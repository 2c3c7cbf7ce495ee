use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

pub fn hash_password() -> anyhow::Result<ExitCode> {
    let password = read_password()?;
    anyhow::ensure!(!password.is_empty(), "the password is empty");
    let hash = tidegate_edge::hash_password(password.as_bytes()).map_err(anyhow::Error::msg)?;
    print(&format!("{hash}\n"))
}

pub fn new_api_key() -> anyhow::Result<ExitCode> {
    let (key, hash) = tidegate_edge::new_api_key().map_err(anyhow::Error::msg)?;
    print(&format!("key:  {key}\nhash: {hash}\n"))
}

/// A closed pipe is an error to report, not a reason to panic as `println!` does.
pub fn print(text: &str) -> anyhow::Result<ExitCode> {
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

fn read_password() -> anyhow::Result<String> {
    let stdin = std::io::stdin();
    let quiet = if stdin.is_terminal() {
        eprint!("Password: ");
        Some(Quiet::new()?)
    } else {
        None
    };
    let mut line = String::new();
    stdin.lock().read_line(&mut line).context("cannot read the password")?;
    if quiet.is_some() {
        eprintln!();
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// The terminal without echo, until this is dropped.
struct Quiet(Termios);

impl Quiet {
    fn new() -> anyhow::Result<Self> {
        let before = tcgetattr(std::io::stdin()).context("cannot ask the terminal for its state")?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(std::io::stdin(), OptionalActions::Flush, &silent)
            .context("cannot silence the terminal")?;
        Ok(Self(before))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.0);
    }
}

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context as _, bail, ensure};

/// Where Debian puts what is not in everybody's path.
const MORE_PLACES: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The program's path. Where it is missing and we are root on Debian, its package is installed; `cargo xtask test`
/// does that beforehand, so this is for who runs a single test.
pub fn program(name: &str, package: &str) -> anyhow::Result<PathBuf> {
    found_or_installed(name, package, || find(name))
}

/// The same for what `find_it` knows how to find.
pub(super) fn found_or_installed(
    name: &str,
    package: &str,
    find_it: impl Fn() -> Option<PathBuf>,
) -> anyhow::Result<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock();
    if let Some(found) = find_it() {
        return Ok(found);
    }
    if find("apt-get").is_none() || !is_root() {
        bail!("{name} is missing: install the package {package}, or run this as root on Debian");
    }
    apt_get(&["update", "-q"])?;
    apt_get(&["install", "-q", "-y", "--no-install-recommends", package])?;
    find_it().with_context(|| format!("{package} is installed, and there is no {name}"))
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(MORE_PLACES.map(PathBuf::from));
    places.map(|dir| dir.join(name)).find(|path| path.is_file())
}

fn apt_get(args: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").args(["-o", "DPkg::Lock::Timeout=300"]).args(args);
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", said.trim());
    Ok(())
}

pub(super) fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

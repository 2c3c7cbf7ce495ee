//! Programs beside Rust that the tests use: found, or installed from Debian's packages when that is allowed.

use std::process::{Command, Stdio};

use crate::command::run;

/// Program, Debian package, what for.
const TOOLS: [(&str, &str, &str); 15] = [
    ("strace", "strace", "failing system calls"),
    ("mkfs.ext4", "e2fsprogs", "power cuts"),
    ("mount", "mount", "power cuts and full disks"),
    ("setpriv", "util-linux", "servers that end with their tests"),
    ("redis-server", "redis-server", "policies on Redis"),
    ("postgres", "postgresql-15", "the ledger on PostgreSQL"),
    ("faketime", "faketime", "clocks that differ"),
    ("rabbitmq-server", "rabbitmq-server", "the bus on RabbitMQ"),
    ("g++", "g++", "building the Kafka client"),
    ("make", "make", "building the Kafka client"),
    ("java", "default-jre-headless", "a private Kafka"),
    ("mvn", "maven", "fetching that Kafka"),
    ("python3", "python3-venv", "checking compose.yaml"),
    ("ip", "iproute2", "a network for the services of compose.yaml"),
    ("curl", "curl", "what the README says about them"),
];

/// Makes sure of the tools. Returns whether disks can be mounted and cut off, which takes root; without it those
/// tests are left out, and say so.
pub fn ensure() -> Result<bool, String> {
    let missing: Vec<_> = TOOLS.iter().filter(|(program, ..)| !exists(program)).collect();
    let root = is_root();
    if !missing.is_empty() && root && exists("apt-get") {
        run(Command::new("apt-get").args(["update", "-q"]))?;
        let mut install = Command::new("apt-get");
        install.env("DEBIAN_FRONTEND", "noninteractive");
        install.args(["-o", "DPkg::Lock::Timeout=300", "install", "-q", "-y", "--no-install-recommends"]);
        run(install.args(missing.iter().map(|(_, package, _)| package)))?;
    } else if !missing.is_empty() {
        let list: Vec<_> = missing.iter().map(|(program, _, why)| format!("{program} ({why})")).collect();
        return Err(format!("missing: {}; install them, or run this as root on Debian", list.join(", ")));
    }
    if !root {
        println!("not root: the tests that mount disks (power cuts, full disk) are left out");
    }
    Ok(root)
}

fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(std::path::PathBuf::from);
    // Debian keeps several versions of PostgreSQL side by side, and none in the path.
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let more = more.into_iter().chain(versions.map(|version| version.path().join("bin")));
    std::env::split_paths(&path).chain(more).any(|dir| dir.join(program).is_file())
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").stderr(Stdio::null()).output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

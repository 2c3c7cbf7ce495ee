//! Programs beside Rust that the tests use: found, or installed from Debian's packages when that is allowed.

use std::process::{Command, Stdio};

use crate::command::run;

type Tool = (&'static str, &'static str, &'static str);

/// Program or header, Debian package, what for.
const TOOLS: [Tool; 9] = [
    ("strace", "strace", "failing system calls"),
    ("mkfs.ext4", "e2fsprogs", "power cuts"),
    ("mount", "mount", "power cuts and full disks"),
    ("setpriv", "util-linux", "servers that end with their tests"),
    ("faketime", "faketime", "clocks that differ"),
    ("g++", "g++", "building the Kafka client"),
    ("make", "make", "building the Kafka client"),
    ("pkg-config", "pkg-config", "finding OpenSSL"),
    ("openssl/ssl.h", "libssl-dev", "TLS of the Kafka client"),
];

/// Servers, and what they are started and looked at with.
const SERVERS: [Tool; 8] = [
    ("redis-server", "redis-server", "policies on Redis"),
    ("postgres", "postgresql-15", "the ledger on PostgreSQL"),
    ("rabbitmq-server", "rabbitmq-server", "the bus on RabbitMQ"),
    ("java", "default-jre-headless", "a private Kafka"),
    ("mvn", "maven", "fetching that Kafka"),
    ("python3", "python3-venv", "checking compose.yaml"),
    ("ip", "iproute2", "a network for the services of compose.yaml"),
    ("curl", "curl", "what the README says about them"),
];

/// Makes sure of the tools and the servers. Returns whether disks can be mounted and cut off, which takes root; without
/// it those tests are left out, and say so.
pub fn ensure() -> Result<bool, String> {
    found_or_installed(&[&TOOLS[..], &SERVERS].concat())
}

/// The same for tests that need no servers.
pub fn ensure_without_servers() -> Result<bool, String> {
    found_or_installed(&TOOLS)
}

fn found_or_installed(tools: &[Tool]) -> Result<bool, String> {
    let missing: Vec<_> = tools.iter().filter(|(program, ..)| !exists(program)).collect();
    let root = is_root();
    if !missing.is_empty() && root && exists("apt-get") {
        let mut update = Command::new("apt-get");
        update.args(["update", "-q"]);
        run(update)?;
        let mut install = Command::new("apt-get");
        install.env("DEBIAN_FRONTEND", "noninteractive");
        install.args(["-o", "DPkg::Lock::Timeout=300", "install", "-q", "-y", "--no-install-recommends"]);
        install.args(missing.iter().map(|(_, package, _)| package));
        run(install)?;
    } else if !missing.is_empty() {
        let list: Vec<_> = missing.iter().map(|(program, _, why)| format!("{program} ({why})")).collect();
        return Err(format!("missing: {}; install them, or run this as root on Debian", list.join(", ")));
    }
    Ok(root)
}

fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin", "/usr/include"].map(std::path::PathBuf::from);
    // Debian keeps several versions of PostgreSQL side by side, and none in the path.
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let more = more.into_iter().chain(versions.map(|version| version.path().join("bin")));
    std::env::split_paths(&path).chain(more).any(|dir| dir.join(program).is_file())
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").stderr(Stdio::null()).output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

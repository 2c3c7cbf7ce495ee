use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;

use super::directory::{directory, log_path};
use super::package::{found_or_installed, is_root};
use super::tied::Tied;
use crate::HANG;
use crate::process::free_address;

const STOPPED_WITHIN: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);

/// Where Debian keeps the server's programs, by major version.
const VERSIONS: &str = "/usr/lib/postgresql";
const PACKAGE: &str = "postgresql-15";
/// Refuses root, so root starts it as this user.
const USER: &str = "postgres";

/// A private PostgreSQL server. Every user named `postgres` may do everything, without a password.
#[derive(Debug)]
pub struct Postgres {
    pub address: SocketAddr,
    options: PostgresOptions,
    programs: PathBuf,
    dir: TempDir,
    server: Tied,
    databases: AtomicU64,
}

#[derive(Debug, Clone, Default)]
pub struct PostgresOptions {
    /// As users run it: what is answered is on disk. Without it nothing is synced, which is faster.
    pub durable: bool,
    /// Further settings, such as `("max_connections", "20")`.
    pub settings: Vec<(String, String)>,
}

impl Postgres {
    pub fn start(options: PostgresOptions) -> anyhow::Result<Self> {
        let programs = programs()?;
        let dir = directory("postgres")?;
        if is_root() {
            run(Command::new("chown").arg(format!("{USER}:{USER}")).arg(dir.path()))?;
        }
        let data = dir.path().join("data");
        let mut initdb = as_user(&programs.join("initdb"), &[]);
        initdb.arg("-D").arg(&data).args(["-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"]);
        run(initdb.arg("--no-sync"))?;
        let address = free_address()?;
        let server = spawn(&programs, dir.path(), address, &options)?;
        let mut postgres = Self { address, options, programs, dir, server, databases: AtomicU64::new(0) };
        postgres.wait_until_ready()?;
        Ok(postgres)
    }

    /// One for all tests of a process that can share it; it ends with the process.
    pub fn shared() -> &'static Self {
        static SHARED: LazyLock<Postgres> = LazyLock::new(|| {
            let settings = [("max_connections", "400"), ("deadlock_timeout", "100ms")];
            let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
            Postgres::start(PostgresOptions { durable: false, settings }).expect("a private PostgreSQL")
        });
        &SHARED
    }

    /// A name that no other database of this server has.
    pub fn new_name(&self) -> String {
        format!("case_{}", self.databases.fetch_add(1, Ordering::Relaxed))
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@{}/{database}", self.address)
    }

    /// Runs statements through `psql`; what they answer, one row per line.
    pub fn sql(&self, database: &str, statements: &str) -> anyhow::Result<String> {
        let mut psql = Command::new(self.program("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", USER, "-d", database]);
        psql.args(["-h", &self.address.ip().to_string(), "-p", &self.address.port().to_string()]);
        run(psql.args(["-c", statements]))
    }

    /// One of those that come with the server, such as `pgbench`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// What the server has said so far: its log.
    pub fn log(&self) -> anyhow::Result<String> {
        Ok(fs::read_to_string(log_path(self.dir.path()))?)
    }

    /// `kill -9` of the whole server.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.server.kill()
    }

    pub fn stop(&self) -> anyhow::Result<()> {
        self.server.stop()
    }

    pub fn resume(&self) -> anyhow::Result<()> {
        self.server.resume()
    }

    /// On the same port and directory, after a kill. Orphans of the killed one may finish what they are at, and until
    /// then a new one refuses to start.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let said_before = self.log().unwrap_or_default().len();
            self.server = spawn(&self.programs, self.dir.path(), self.address, &self.options)?;
            let ready = self.wait_until_ready();
            let log = self.log().unwrap_or_default();
            let orphaned = log.get(said_before..).is_some_and(|said| said.contains("is still in use"));
            if ready.is_ok() || !orphaned || begun.elapsed() > HANG {
                return ready;
            }
        }
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let said = self.sql("postgres", "SELECT 1");
            if said.is_ok() {
                return Ok(());
            }
            if !self.server.is_running() || begun.elapsed() > HANG {
                bail!("PostgreSQL is not ready: {said:?}\n{}", self.log().unwrap_or_default());
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // At once, but without leaving shared memory behind, as a kill does.
        let _ = self.server.signal(libc::SIGQUIT);
        let begun = Instant::now();
        while self.server.is_running() && begun.elapsed() < STOPPED_WITHIN {
            std::thread::sleep(POLL);
        }
    }
}

fn spawn(
    programs: &Path,
    dir: &Path,
    address: SocketAddr,
    options: &PostgresOptions,
) -> anyhow::Result<Tied> {
    // To PostgreSQL this signal means: stop at once, and leave no shared memory behind.
    let mut command = as_user(&programs.join("postgres"), &["--pdeathsig", "QUIT"]);
    command.arg("-D").arg(dir.join("data")).args(["-p", &address.port().to_string()]);
    command.args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]);
    if !options.durable {
        for name in ["fsync", "synchronous_commit", "full_page_writes"] {
            command.args(["-c", &format!("{name}=off")]);
        }
    }
    for (name, value) in &options.settings {
        command.args(["-c", &format!("{name}={value}")]);
    }
    let log = File::options().create(true).append(true).open(log_path(dir))?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    Tied::spawn(command)
}

/// Of the newest version there is; where there is none and we are root on Debian, one is installed.
fn programs() -> anyhow::Result<PathBuf> {
    found_or_installed("PostgreSQL", PACKAGE, newest)
}

fn newest() -> Option<PathBuf> {
    let versions = fs::read_dir(VERSIONS).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let numbered = versions.filter_map(|path| {
        let version: u32 = path.file_name()?.to_str()?.parse().ok()?;
        Some((version, path.join("bin"))).filter(|(_, bin)| bin.join("postgres").is_file())
    });
    numbered.max().map(|(_, bin)| bin)
}

/// A program as the server's user where we are root, through one that becomes it: its pid is the program's.
fn as_user(program: &Path, more: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(more);
    if is_root() {
        let (user, group) = (format!("--reuid={USER}"), format!("--regid={USER}"));
        command.args([&user, &group, "--clear-groups"]);
    }
    command.arg("--").arg(program).current_dir("/");
    command
}

fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", said.trim());
    Ok(String::from_utf8(output.stdout)?)
}

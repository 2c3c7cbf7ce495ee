use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;

use super::directory::{directory, log_path};
use super::package::{found_or_installed, program};
use super::tied::Tied;
use crate::HANG;
use crate::process::free_address;

const POLL: Duration = Duration::from_millis(20);

/// What stands behind Debian's programs of the same names, which change the user and the directories.
const PROGRAMS: &str = "/usr/lib/rabbitmq/bin";
const PACKAGE: &str = "rabbitmq-server";
/// The last thing that a node says when it starts.
const STARTED: &str = "completed with";

/// A node that starts keeps a small machine busy: each in its turn, they are ready sooner.
static STARTING: Mutex<()> = Mutex::new(());

/// A private RabbitMQ, durable as users run it. The user is `guest`, and the password too.
#[derive(Debug)]
pub struct RabbitMq {
    pub address: SocketAddr,
    /// For connections over TLS, if it has a certificate.
    pub tls_address: SocketAddr,
    /// Where nodes and tools of one machine find each other, and where this node listens for them.
    names: SocketAddr,
    distribution: SocketAddr,
    programs: PathBuf,
    // The order of dropping: the node, then its register of names.
    node: Tied,
    epmd: Tied,
    dir: TempDir,
    named: AtomicU64,
}

#[derive(Debug, Clone, Default)]
pub struct RabbitMqOptions {
    /// The files of a certificate and of its key, in PEM.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl RabbitMq {
    /// Takes 5 to 10 seconds.
    pub fn start() -> anyhow::Result<Self> {
        Self::start_with(RabbitMqOptions::default())
    }

    pub fn start_with(options: RabbitMqOptions) -> anyhow::Result<Self> {
        let programs = found_or_installed("RabbitMQ", PACKAGE, installed)?;
        let dir = directory("rabbitmq")?;
        for name in ["home", "mnesia", "logs"] {
            fs::create_dir(dir.path().join(name))?;
        }
        let (address, tls_address) = (free_address()?, free_address()?);
        let (names, distribution) = (free_address()?, free_address()?);
        fs::write(dir.path().join("enabled_plugins"), "[].")?;
        fs::write(dir.path().join("rabbitmq.conf"), settings(tls_address, &options))?;
        let mut epmd = Tied::command(program("epmd", "erlang-base")?);
        epmd.args(["-port", &names.port().to_string(), "-address", &names.ip().to_string()]);
        epmd.env("HOME", dir.path().join("home"));
        epmd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let epmd = Tied::spawn(epmd)?;
        let until = Instant::now() + HANG;
        while TcpStream::connect(names).is_err() {
            ensure!(Instant::now() < until, "epmd on {names} is not ready");
            std::thread::sleep(POLL);
        }
        let _turn = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let node = spawn(&programs, dir.path(), [address, names, distribution])?;
        let named = AtomicU64::new(0);
        let mut rabbitmq =
            Self { address, tls_address, names, distribution, programs, node, epmd, dir, named };
        rabbitmq.wait_until_ready()?;
        Ok(rabbitmq)
    }

    /// One for all tests of a process that can share it; it ends with the process.
    pub fn shared() -> &'static Self {
        static SHARED: LazyLock<RabbitMq> = LazyLock::new(|| RabbitMq::start().expect("a private RabbitMQ"));
        &SHARED
    }

    /// A name that no other exchange or queue of this server begins with.
    pub fn new_name(&self) -> String {
        format!("case-{}", self.named.fetch_add(1, Ordering::Relaxed))
    }

    pub fn url(&self) -> String {
        format!("amqp://guest:guest@{}/%2f", self.address)
    }

    /// Everything that listens: the broker, the register of names, and the node's line to its tools.
    pub fn addresses(&self) -> [SocketAddr; 3] {
        [self.address, self.names, self.distribution]
    }

    /// Runs `rabbitmqctl`, which takes a second or two; what it says, without headings.
    pub fn ctl(&self, args: &[&str]) -> anyhow::Result<String> {
        let mut ctl = Command::new(self.programs.join("rabbitmqctl"));
        environment(&mut ctl, self.dir.path(), self.addresses());
        let output = ctl.arg("--quiet").args(args).stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("{ctl:?}"))?;
        let said = String::from_utf8(output.stdout)?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "rabbitmqctl {args:?}: {said} {complaint}");
        Ok(said)
    }

    /// Low on memory, or no longer: whoever publishes is held up meanwhile.
    pub fn alarm(&self, low_on_memory: bool) -> anyhow::Result<()> {
        let share = if low_on_memory { "0.000001" } else { "0.8" };
        self.ctl(&["set_vm_memory_high_watermark", share]).map(drop)
    }

    /// What was declared survives a kill from now on. The node keeps the names of its quorum queues in tables that it
    /// writes to disk seconds later, and does not find a queue again whose name it lost.
    pub fn settle(&self) -> anyhow::Result<()> {
        let said = self.ctl(&["eval", "[ok = dets:sync(Table) || Table <- dets:all()]."])?;
        ensure!(said.contains("ok"), "nothing is settled: {said}");
        Ok(())
    }

    /// `kill -9` of the node.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.node.kill()
    }

    /// Freezes it: it takes connections, by way of the kernel, and answers nobody.
    pub fn stop(&self) -> anyhow::Result<()> {
        self.node.stop()
    }

    pub fn resume(&self) -> anyhow::Result<()> {
        self.node.resume()
    }

    /// On the same ports and with what is on its disk, after a kill.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        let _turn = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        self.node = spawn(&self.programs, self.dir.path(), self.addresses())?;
        self.wait_until_ready()
    }

    /// What the node has said since it was started last.
    pub fn log(&self) -> anyhow::Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(log_path(self.dir.path()))?).into_owned())
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + HANG;
        while !self.log()?.contains(STARTED) {
            if !self.node.is_running() || !self.epmd.is_running() || Instant::now() > until {
                bail!("RabbitMQ on {} is not ready:\n{}", self.address, self.log()?);
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}

fn installed() -> Option<PathBuf> {
    Some(PathBuf::from(PROGRAMS)).filter(|programs| programs.join("rabbitmq-server").is_file())
}

fn spawn(programs: &Path, dir: &Path, addresses: [SocketAddr; 3]) -> anyhow::Result<Tied> {
    let mut command = Tied::command(programs.join("rabbitmq-server"));
    environment(&mut command, dir, addresses);
    // Otherwise the script stays in between, and the child's pid is not the node's.
    command.env("RABBITMQ_ALLOW_INPUT", "1").arg("-noinput");
    let log = File::create(log_path(dir))?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Tied::spawn(command)
}

fn environment(command: &mut Command, dir: &Path, [address, names, distribution]: [SocketAddr; 3]) {
    let [port, names, distribution] = [address, names, distribution].map(|at| at.port().to_string());
    command.env("HOME", dir.join("home"));
    command.env("ERL_EPMD_PORT", names).env("ERL_EPMD_ADDRESS", Ipv4Addr::LOCALHOST.to_string());
    command.env("RABBITMQ_NODENAME", format!("t{port}@localhost"));
    command.env("RABBITMQ_NODE_IP_ADDRESS", Ipv4Addr::LOCALHOST.to_string());
    command.env("RABBITMQ_NODE_PORT", port).env("RABBITMQ_DIST_PORT", distribution);
    command.env("RABBITMQ_MNESIA_BASE", dir.join("mnesia")).env("RABBITMQ_LOG_BASE", dir.join("logs"));
    command.env("RABBITMQ_LOGS", "-").env("RABBITMQ_CONF_ENV_FILE", "/dev/null");
    command.env("RABBITMQ_ENABLED_PLUGINS_FILE", dir.join("enabled_plugins"));
    command.env("RABBITMQ_CONFIG_FILE", dir.join("rabbitmq.conf"));
    // On loopback alone; and its schedulers sleep when there is nothing to do, instead of spinning for a while.
    let arguments = "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none";
    command.env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", arguments);
}

fn settings(tls_address: SocketAddr, options: &RabbitMqOptions) -> String {
    // A small disk is the machine's business, and no alarm of ours.
    let mut lines = vec!["disk_free_limit.absolute = 10MB".to_owned()];
    if let Some((certificate, key)) = &options.certificate {
        lines.push(format!("listeners.ssl.default = {tls_address}"));
        lines.push(format!("ssl_options.certfile = {}", certificate.display()));
        lines.push(format!("ssl_options.keyfile = {}", key.display()));
        lines.push("ssl_options.verify = verify_none".to_owned());
    }
    lines.join("\n") + "\n"
}

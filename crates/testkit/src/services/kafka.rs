use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use tempfile::TempDir;

use super::directory::{directory, log_path};
use super::package::program;
use super::tied::Tied;
use crate::HANG;
use crate::process::free_address;

mod jars;
mod properties;

pub use jars::NoKafka;
use jars::Turn;

const POLL: Duration = Duration::from_millis(20);
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// ApiVersions of version 0, with correlation id 7 and no client's name: the smallest question there is.
const QUESTION: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff];
/// Small, and compiled fast rather than well: it lives for seconds.
const MACHINE: [&str; 5] =
    ["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"];

/// A private Apache Kafka: one node in KRaft mode, broker and controller. It keeps its log over a kill.
#[derive(Debug)]
pub struct Kafka {
    /// For clients.
    pub address: SocketAddr,
    /// For the node itself, without a login.
    inner: SocketAddr,
    jars: PathBuf,
    dir: TempDir,
    server: Tied,
}

#[derive(Debug, Clone, Default)]
pub struct KafkaOptions {
    /// Names and passwords of those who may log in, by SASL/PLAIN unless `scram`. None: everybody may, without a login.
    pub users: Vec<(String, String)>,
    /// They log in by SCRAM-SHA-512, and in no other way.
    pub scram: bool,
    /// For TLS: the files of a certificate and its key. Clients are told the name `localhost` then.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The file of those whom the broker trusts to say who a client is. It then wants a certificate of every client.
    pub client_roots: Option<PathBuf>,
    /// Whoever asks for a topic that is missing makes it, as a stock Kafka does.
    pub topics_on_demand: bool,
    /// Further settings of the broker, such as `("message.max.bytes", "20000")`.
    pub settings: Vec<(String, String)>,
}

impl Kafka {
    /// Fails with a [`NoKafka`] where Kafka can't be fetched.
    pub fn start() -> anyhow::Result<Self> {
        Self::start_with(&KafkaOptions::default())
    }

    pub fn start_with(options: &KafkaOptions) -> anyhow::Result<Self> {
        let turn = Turn::take()?;
        let jars = jars::jars(&turn)?;
        let dir = directory("kafka")?;
        let addresses = [free_address()?, free_address()?, free_address()?];
        let [address, inner, _] = addresses;
        fs::write(properties(&dir), properties::broker(options, addresses, dir.path()))?;
        fs::write(log_properties(&dir), properties::LOG)?;
        if let Some((certificate, key)) = &options.certificate {
            // Kafka reads both from one file, the key first.
            fs::write(key_store(dir.path()), [fs::read(key)?, fs::read(certificate)?].concat())?;
        }
        format(&jars, &dir, options)?;
        let server = spawn(&jars, &dir)?;
        let mut kafka = Self { address, inner, jars, dir, server };
        kafka.wait_until_ready()?;
        Ok(kafka)
    }

    /// The directory of its jars and of its tools', for who starts it in another way. Fails as `start` does.
    pub fn jars() -> anyhow::Result<PathBuf> {
        jars::jars(&Turn::take()?)
    }

    /// The same under the name in its certificate, for clients over TLS.
    pub fn named(&self) -> String {
        format!("localhost:{}", self.address.port())
    }

    /// What a client calls `bootstrap.servers`.
    pub fn bootstrap(&self) -> String {
        self.address.to_string()
    }

    /// What the broker has said so far: its log, from warnings on.
    pub fn log(&self) -> String {
        fs::read_to_string(log_path(self.dir.path())).unwrap_or_default()
    }

    /// `kill -9`.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.server.kill()
    }

    /// On the same ports and with what it has, after a kill.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        let _turn = Turn::take()?;
        self.server = spawn(&self.jars, &self.dir)?;
        self.wait_until_ready()
    }

    /// Freezes it: it takes connections, by way of the kernel, and answers nobody.
    pub fn stop(&self) -> anyhow::Result<()> {
        self.server.stop()
    }

    pub fn resume(&self) -> anyhow::Result<()> {
        self.server.resume()
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        // It answers nobody before it knows its topics and the controller has let it in.
        while let Err(said) = ask(self.inner) {
            if !self.server.is_running() || begun.elapsed() > HANG {
                bail!("Kafka is not ready: {said}\n{}", self.log());
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}

fn ask(address: SocketAddr) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_WITHIN)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    stream.write_all(&QUESTION)?;
    // Length, correlation id, error code.
    let mut answer = [0; 10];
    stream.read_exact(&mut answer)?;
    ensure!(answer[4..] == [0, 0, 0, 7, 0, 0], "it answers {answer:?}");
    Ok(())
}

fn properties(dir: &TempDir) -> PathBuf {
    dir.path().join("broker.properties")
}

fn log_properties(dir: &TempDir) -> PathBuf {
    dir.path().join("log.properties")
}

/// The arguments of a Java machine that has Kafka, up to the main class.
fn machine(command: &mut Command, jars: &Path, dir: &TempDir) {
    let mut log = std::ffi::OsString::from("-Dlog4j2.configurationFile=");
    log.push(log_properties(dir));
    command.args(MACHINE).arg(log).arg("-cp").arg(jars.join("*")).stdin(Stdio::null());
}

fn key_store(dir: &Path) -> PathBuf {
    dir.join("broker.pem")
}

fn format(jars: &Path, dir: &TempDir, options: &KafkaOptions) -> anyhow::Result<()> {
    let mut command = Command::new(program("java", "default-jre-headless")?);
    machine(&mut command, jars, dir);
    command.args(["kafka.tools.StorageTool", "format", "--standalone", "--cluster-id", properties::CLUSTER]);
    for (name, password) in options.users.iter().filter(|_| options.scram) {
        // Kafka keeps them in its log.
        command.arg("--add-scram").arg(format!("SCRAM-SHA-512=[name={name},password={password}]"));
    }
    let output = command.arg("--config").arg(properties(dir)).output()?;
    let said = [output.stdout, output.stderr].concat();
    ensure!(output.status.success(), "Kafka's log can't be formatted: {}", String::from_utf8_lossy(&said));
    Ok(())
}

fn spawn(jars: &Path, dir: &TempDir) -> anyhow::Result<Tied> {
    let mut command = Tied::command(program("java", "default-jre-headless")?);
    machine(&mut command, jars, dir);
    let log = File::options().create(true).append(true).open(log_path(dir.path()))?;
    command.arg("kafka.Kafka").arg(properties(dir)).stdout(log.try_clone()?).stderr(log);
    Tied::spawn(command)
}

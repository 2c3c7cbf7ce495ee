use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::services::package::program;

pub const VERSION: &str = "4.3.1";
const LOG4J: &str = "2.25.4";
const FETCHED_WITHIN_S: &str = "300";

/// Kafka can't be had: Maven Central does not answer, or has no such version.
#[derive(Debug)]
pub struct NoKafka(String);

impl std::fmt::Display for NoKafka {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot fetch Apache Kafka {VERSION} from Maven Central: {}", self.0)
    }
}

impl std::error::Error for NoKafka {}

/// Holds everybody else up who wants to fetch or start a Kafka, in this process or another one: to fetch it twice at
/// once would be wrong, to start several at once is slower than one after the other. Ends with its holder, however that
/// ends.
pub struct Turn {
    tools: PathBuf,
    _lock: File,
}

impl Turn {
    pub fn take() -> anyhow::Result<Self> {
        let tools = build_directory().join("tools");
        fs::create_dir_all(&tools).with_context(|| format!("cannot make {}", tools.display()))?;
        let lock = File::create(tools.join("kafka.lock"))?;
        lock.lock()?;
        Ok(Self { tools, _lock: lock })
    }
}

/// The directory that holds Kafka's jars; fetched once per build directory. The error is a [`NoKafka`] if that is why.
pub fn jars(turn: &Turn) -> anyhow::Result<PathBuf> {
    let kept = turn.tools.join(format!("kafka-{VERSION}-with-tools"));
    if !kept.is_dir() {
        let fetched = tempfile::Builder::new().prefix("kafka-").tempdir_in(&turn.tools)?;
        fetch(fetched.path())?;
        // Only what is complete bears the name.
        fs::rename(fetched.path().join("jars"), &kept)?;
    }
    Ok(kept)
}

fn fetch(dir: &Path) -> anyhow::Result<()> {
    let (maven, _) = (program("mvn", "maven")?, program("java", "default-jre-headless")?);
    fs::write(dir.join("pom.xml"), pom())?;
    let mut command = Command::new("timeout");
    command.arg(FETCHED_WITHIN_S).arg(maven).args(["--batch-mode", "--quiet", "-Dstyle.color=never"]);
    command.args(["dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=jars"]);
    let output = command.current_dir(dir).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let first = said.lines().find(|line| line.contains("ERROR")).unwrap_or("no answer in time");
    Err(NoKafka(first.to_owned()).into())
}

fn pom() -> String {
    let dependency = |group: &str, artifact: &str, version: &str, more: &str| {
        format!(
            "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
             <version>{version}</version>{more}</dependency>"
        )
    };
    let broker = dependency("org.apache.kafka", "kafka_2.13", VERSION, "");
    // They ask for a web server, for tools that nobody needs here; the others find what they need with the broker.
    let alone =
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>";
    let tools = dependency("org.apache.kafka", "kafka-tools", VERSION, alone);
    let log = dependency("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J, "");
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
         <groupId>tidegate</groupId><artifactId>kafka</artifactId><version>1</version>\
         <packaging>pom</packaging><dependencies>{broker}{tools}{log}</dependencies></project>"
    )
}

fn build_directory() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    std::env::var_os("CARGO_TARGET_DIR").map_or(workspace, PathBuf::from)
}

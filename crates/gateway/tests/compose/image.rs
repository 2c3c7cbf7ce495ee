use std::path::{Path, PathBuf};

use tidegate_testkit::services::{Kafka, program};

use crate::file::Service;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const ROOT: &str = "0:0";
const OURS: &str = "10001:10001";
const KAFKA: &str = "1000:1000";
const RABBITMQ: &str = "rabbitmq:rabbitmq";

/// What stands in for a service's image: this machine's programs, and what the image's own entrypoint does before it
/// becomes the service's command.
pub struct Image {
    /// Who its processes are, as USER:GROUP; the file or an entrypoint may change that.
    user: &'static str,
    pub volume_owner: &'static str,
    pub work_dir: &'static str,
    pub variables: Vec<(&'static str, String)>,
    /// Executable, with their text.
    pub files: Vec<(&'static str, String)>,
    /// Files and directories of this machine that lie elsewhere in the image.
    pub parts: Vec<(PathBuf, &'static str)>,
    /// Further ones, with their owners.
    pub directories: Vec<(&'static str, &'static str)>,
    pub entrypoint: Vec<String>,
    pub command: Vec<String>,
    confined: bool,
}

impl Image {
    pub fn of(service: &Service<'_>) -> Self {
        let name = service.image().split(':').next().unwrap();
        match name {
            "tidegate" => tidegate(),
            "postgres" => postgres(),
            "redis" => redis(),
            "apache/kafka" => kafka(),
            "rabbitmq" => rabbitmq(),
            other => panic!("{other} has no stand-in"),
        }
    }

    /// The words that make a program the service's user's, and let it end with whoever started it.
    pub fn as_user(&self, service: Service<'_>) -> Vec<String> {
        let (user, group) = match service.value["user"].as_str() {
            Some(name) => (name, name),
            None => self.user.split_once(':').unwrap(),
        };
        let mut words = vec!["setpriv".into(), "--pdeathsig=KILL".into()];
        words.extend([format!("--reuid={user}"), format!("--regid={group}"), "--clear-groups".into()]);
        if self.confined {
            // cap_drop and no-new-privileges.
            words.extend(["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"].map(str::to_owned));
        }
        words.push("--".into());
        words
    }

    /// The words that give a program the file's environment, and nothing of ours.
    pub fn in_environment(&self, service: Service<'_>) -> Vec<String> {
        let mut words = vec!["env".into(), "-i".into(), format!("--chdir={}", self.work_dir)];
        words.extend(self.variables.iter().map(|(name, value)| format!("{name}={value}")));
        words.extend(service.environment().iter().map(|(name, value)| format!("{name}={value}")));
        words
    }

    fn plain() -> Self {
        Self {
            user: ROOT,
            volume_owner: ROOT,
            work_dir: "/",
            variables: vec![("PATH", PATH.to_owned())],
            files: Vec::new(),
            parts: Vec::new(),
            directories: Vec::new(),
            entrypoint: Vec::new(),
            command: Vec::new(),
            confined: false,
        }
    }

    fn with_entrypoint(mut self, text: &str) -> Self {
        self.files.push(("/entrypoint", format!("#!/bin/sh\nset -eu\n{text}\n")));
        self.entrypoint = vec!["/entrypoint".to_owned()];
        self
    }
}

/// As our Dockerfile has it; `rules` sees to it that it does.
fn tidegate() -> Image {
    Image {
        user: OURS,
        volume_owner: OURS,
        work_dir: "/data",
        parts: vec![(env!("CARGO_BIN_EXE_tidegate").into(), "/usr/local/bin/tidegate")],
        entrypoint: vec!["tidegate".to_owned()],
        command: vec!["serve".to_owned()],
        confined: true,
        ..Image::plain()
    }
}

/// Makes user and database on the first start, and listens everywhere.
fn postgres() -> Image {
    let versions = std::fs::read_dir("/usr/lib/postgresql").unwrap();
    let programs = versions.map(|version| version.unwrap().path().join("bin")).max().unwrap();
    let image = Image::plain().with_entrypoint(
        r#"as="setpriv --pdeathsig=KILL --reuid=postgres --regid=postgres --clear-groups --"
mkdir -p /var/run/postgresql
chown postgres:postgres "$PGDATA" /var/run/postgresql
chmod 700 "$PGDATA"
if ! [ -s "$PGDATA/PG_VERSION" ]; then
  printf %s "$POSTGRES_PASSWORD" > /tmp/password
  chmod 644 /tmp/password
  $as initdb --pgdata="$PGDATA" --username="$POSTGRES_USER" --pwfile=/tmp/password --auth=scram-sha-256 \
    --encoding=UTF8 --locale=C.UTF-8
  echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
  echo "listen_addresses = '*'" >> "$PGDATA/postgresql.conf"
  echo "CREATE DATABASE \"$POSTGRES_DB\"" | $as postgres --single -D "$PGDATA" postgres
fi
exec $as "$@""#,
    );
    let variables = vec![
        ("PATH", format!("{}:{PATH}", programs.display())),
        ("PGDATA", "/var/lib/postgresql/data".to_owned()),
    ];
    Image { variables, command: vec!["postgres".to_owned()], ..image }
}

fn redis() -> Image {
    program("redis-server", "redis-server").unwrap();
    let image = Image::plain().with_entrypoint(
        "chown redis:redis .\n\
         exec setpriv --pdeathsig=KILL --reuid=redis --regid=redis --clear-groups -- \"$@\"",
    );
    Image { work_dir: "/data", command: vec!["redis-server".to_owned()], ..image }
}

/// The program that turns variables into properties and formats the log is Kafka's own, the image's one, and may find that
/// done; what runs programs from its jars is not.
fn kafka() -> Image {
    program("java", "default-jre-headless").unwrap();
    let run = "exec java ${KAFKA_HEAP_OPTS:-} ${KAFKA_JVM_PERFORMANCE_OPTS:-} -cp '/opt/kafka/libs/*'";
    let command = format!(
        "#!/bin/sh\nset -eu\n\
         java -cp '/opt/kafka/libs/*' kafka.docker.KafkaDockerWrapper setup --default-configs-dir /etc/kafka/docker \
         --mounted-configs-dir /mnt/shared/config --final-configs-dir /opt/kafka/config > /tmp/said 2>&1 \
         || grep 'already formatted' /tmp/said || {{ cat /tmp/said; exit 1; }}\n\
         {run} kafka.Kafka /opt/kafka/config/server.properties\n"
    );
    let tool = format!("#!/bin/sh\n{run} org.apache.kafka.tools.BrokerApiVersionsCommand \"$@\"\n");
    let defaults = ["server.properties", "log4j2.yaml", "tools-log4j2.yaml"];
    let [properties, log, tools_log] = defaults.map(|name| format!("# {name}\n"));
    Image {
        user: KAFKA,
        volume_owner: KAFKA,
        files: vec![
            ("/etc/kafka/docker/run", command),
            ("/opt/kafka/bin/kafka-broker-api-versions.sh", tool),
            ("/etc/kafka/docker/server.properties", properties),
            ("/etc/kafka/docker/log4j2.yaml", log),
            ("/etc/kafka/docker/tools-log4j2.yaml", tools_log),
        ],
        parts: vec![(Kafka::jars().unwrap(), "/opt/kafka/libs")],
        directories: vec![("/opt/kafka/config", KAFKA), ("/mnt/shared/config", KAFKA)],
        command: vec!["/etc/kafka/docker/run".to_owned()],
        ..Image::plain()
    }
}

fn rabbitmq() -> Image {
    let programs = "/usr/lib/rabbitmq/bin";
    if !Path::new(programs).is_dir() {
        program("rabbitmq-server", "rabbitmq-server").unwrap();
    }
    let variables = [("PATH", format!("{programs}:{PATH}")), ("HOME", "/var/lib/rabbitmq".to_owned())];
    let variables = variables.into_iter().chain([("RABBITMQ_LOGS", "-".to_owned())]).collect();
    let command = vec!["rabbitmq-server".to_owned()];
    Image { volume_owner: RABBITMQ, variables, command, ..Image::plain() }
}

/// One word to a shell, whatever is in it.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

use std::net::SocketAddr;
use std::path::Path;

use super::{KafkaOptions, key_store};

pub const CLUSTER: &str = "tidegate-private-kafka";

/// From warnings on, to the standard output.
pub const LOG: &str = "\
rootLogger.level=warn
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %c{1} %m%n
";

/// One node that is everything, small and impatient.
const FIXED: &str = "\
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
inter.broker.listener.name=INNER
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
num.network.threads=2
num.io.threads=4
log.cleaner.dedupe.buffer.size=2097152
log.segment.bytes=33554432
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=5000
";

pub fn broker(options: &KafkaOptions, addresses: [SocketAddr; 3], dir: &Path) -> String {
    let [client, inner, controller] = addresses;
    let login = match (options.users.is_empty(), options.certificate.is_some()) {
        (true, false) => "PLAINTEXT",
        (true, true) => "SSL",
        (false, false) => "SASL_PLAINTEXT",
        (false, true) => "SASL_SSL",
    };
    // A certificate is for a name.
    let told = if options.certificate.is_some() {
        format!("localhost:{}", client.port())
    } else {
        client.to_string()
    };
    let data = dir.join("data");
    let mut lines = vec![
        FIXED.to_owned(),
        format!("controller.quorum.bootstrap.servers={controller}"),
        format!("listeners=CLIENT://{client},INNER://{inner},CONTROLLER://{controller}"),
        format!("advertised.listeners=CLIENT://{told},INNER://{inner}"),
        format!("listener.security.protocol.map=CLIENT:{login},INNER:PLAINTEXT,CONTROLLER:PLAINTEXT"),
        format!("log.dirs={}", data.display()),
        format!("auto.create.topics.enable={}", options.topics_on_demand),
    ];
    if options.certificate.is_some() {
        lines.push("listener.name.client.ssl.keystore.type=PEM".to_owned());
        lines.push(format!("listener.name.client.ssl.keystore.location={}", key_store(dir).display()));
    }
    if let Some(roots) = &options.client_roots {
        lines.push("listener.name.client.ssl.client.auth=required".to_owned());
        lines.push("listener.name.client.ssl.truststore.type=PEM".to_owned());
        lines.push(format!("listener.name.client.ssl.truststore.location={}", roots.display()));
    }
    if options.scram {
        lines.push("listener.name.client.sasl.enabled.mechanisms=SCRAM-SHA-512".to_owned());
        lines.push(
            "listener.name.client.scram-sha-512.sasl.jaas.config=\
             org.apache.kafka.common.security.scram.ScramLoginModule required;"
                .to_owned(),
        );
    } else if !options.users.is_empty() {
        let user = |(name, password): &(String, String)| format!(" user_{name}=\"{password}\"");
        let users: String = options.users.iter().map(user).collect();
        lines.push("listener.name.client.sasl.enabled.mechanisms=PLAIN".to_owned());
        lines.push(format!(
            "listener.name.client.plain.sasl.jaas.config=\
             org.apache.kafka.common.security.plain.PlainLoginModule required{users};"
        ));
    }
    lines.extend(options.settings.iter().map(|(name, value)| format!("{name}={value}")));
    lines.join("\n")
}

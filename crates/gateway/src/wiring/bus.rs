use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use tidegate_bus::Routes;
use tidegate_domain::Bus;
use tidegate_kafka::{self as kafka, KafkaBus};
use tidegate_rabbitmq::{self as rabbitmq, RabbitBus};

use crate::config::{
    BusEngine, BusSettings, KafkaSettings, LoginSettings, RabbitMqSettings, SaslMechanism, Settings,
};

/// The bus of the settings, if they want one. One that is away is no reason not to start.
pub async fn bus(settings: &Settings) -> anyhow::Result<Option<Arc<dyn Bus>>> {
    let Some(bus) = &settings.bus else { return Ok(None) };
    Ok(Some(match &bus.engine {
        BusEngine::Kafka(kafka) => {
            let options = kafka_options(kafka, bus)?;
            Arc::new(KafkaBus::open(options).await.context("[kafka]")?)
        }
        BusEngine::RabbitMq(rabbitmq) => {
            let options = rabbitmq_options(rabbitmq, bus)?;
            Arc::new(RabbitBus::open(options).await.context("[rabbitmq]")?)
        }
    }))
}

fn routes(bus: &BusSettings) -> Routes {
    Routes::new(bus.topics.iter().map(|(queue, topic)| (queue.clone(), topic.clone())))
}

fn kafka_options(settings: &KafkaSettings, bus: &BusSettings) -> anyhow::Result<kafka::Options> {
    let small = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
    Ok(kafka::Options {
        group: settings.group.clone(),
        login: settings.login.as_ref().map(kafka_login),
        tls: settings.tls.then(|| kafka_tls(settings)).transpose()?,
        partitions: small(settings.partitions),
        replication: settings.replication.map(small),
        publish_ms: u64::try_from(settings.publish_timeout.as_millis()).unwrap_or(u64::MAX),
        record_bytes_max: bus.record_bytes_max,
        ..kafka::Options::new(settings.brokers.join(","), routes(bus))
    })
}

fn kafka_login(login: &LoginSettings) -> kafka::Login {
    let mechanism = match login.mechanism {
        SaslMechanism::Plain => kafka::Mechanism::Plain,
        SaslMechanism::ScramSha256 => kafka::Mechanism::ScramSha256,
        SaslMechanism::ScramSha512 => kafka::Mechanism::ScramSha512,
    };
    kafka::Login { mechanism, user: login.user.clone(), password: login.password.clone() }
}

fn kafka_tls(settings: &KafkaSettings) -> anyhow::Result<kafka::Tls> {
    let roots_pem = settings.tls_roots.as_deref().map(|path| text("kafka.tls_roots", path)).transpose()?;
    let identity = match (&settings.tls_certificate, &settings.tls_key) {
        (Some(certificate), Some(key)) => Some(kafka::Identity {
            certificate_pem: text("kafka.tls_certificate", certificate)?,
            key_pem: text("kafka.tls_key", key)?,
        }),
        _ => None,
    };
    Ok(kafka::Tls { roots_pem, identity })
}

fn text(key: &str, path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("{key}: {}", path.display()))
}

fn rabbitmq_options(settings: &RabbitMqSettings, bus: &BusSettings) -> anyhow::Result<rabbitmq::Options> {
    let roots_pem = settings.tls_roots.as_deref().map(|path| text("rabbitmq.tls_roots", path)).transpose()?;
    Ok(rabbitmq::Options {
        roots_pem,
        exchange: settings.exchange.clone(),
        prefetch: settings.prefetch,
        connect_timeout: settings.connect_timeout,
        publish_timeout: settings.publish_timeout,
        record_bytes_max: bus.record_bytes_max,
        ..rabbitmq::Options::new(&settings.url, routes(bus))
    })
}

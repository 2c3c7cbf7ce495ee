use std::sync::Arc;

use anyhow::Context as _;
use tidegate_bus::Routes;
use tidegate_domain::Bus;
use tidegate_kafka::{self as kafka, KafkaBus};
use tidegate_rabbitmq::{self as rabbitmq, RabbitBus};

use crate::config::{BusEngine, BusSettings, KafkaSettings, RabbitMqSettings, Settings};

/// The bus of the settings, if they want one. One that is away is no reason not to start.
pub async fn bus(settings: &Settings) -> anyhow::Result<Option<Arc<dyn Bus>>> {
    let Some(bus) = &settings.bus else { return Ok(None) };
    Ok(Some(match &bus.engine {
        BusEngine::Kafka(kafka) => {
            Arc::new(KafkaBus::open(kafka_options(kafka, bus)).await.context("[kafka]")?)
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

fn kafka_options(settings: &KafkaSettings, bus: &BusSettings) -> kafka::Options {
    let small = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
    let login =
        |(user, password): &(String, String)| kafka::Login { user: user.clone(), password: password.clone() };
    kafka::Options {
        group: settings.group.clone(),
        login: settings.login.as_ref().map(login),
        partitions: small(settings.partitions),
        replication: settings.replication.map(small),
        publish_ms: u64::try_from(settings.publish_timeout.as_millis()).unwrap_or(u64::MAX),
        record_bytes_max: bus.record_bytes_max,
        ..kafka::Options::new(settings.brokers.join(","), routes(bus))
    }
}

fn rabbitmq_options(settings: &RabbitMqSettings, bus: &BusSettings) -> anyhow::Result<rabbitmq::Options> {
    let roots_pem = match &settings.tls_roots {
        Some(path) => {
            let place = || format!("rabbitmq.tls_roots: {}", path.display());
            Some(std::fs::read_to_string(path).with_context(place)?)
        }
        None => None,
    };
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

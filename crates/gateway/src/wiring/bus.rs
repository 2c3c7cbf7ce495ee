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

pub fn check(settings: &Settings) -> anyhow::Result<()> {
    let Some(bus) = &settings.bus else { return Ok(()) };
    match &bus.engine {
        BusEngine::Kafka(_) => Ok(()),
        BusEngine::RabbitMq(rabbitmq) => {
            rabbitmq::check(&rabbitmq_options(rabbitmq, bus)?).context("[rabbitmq]")
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Loaded, Sources};

    fn checked(rabbitmq: &str) -> String {
        let text = format!("[bus]\nkind = \"rabbitmq\"\n[rabbitmq]\n{rabbitmq}");
        let sources = Sources { file: Some(("tidegate.toml".into(), text)), ..Sources::default() };
        let settings = Loaded::from_sources(&sources).unwrap().settings;
        check(&settings).err().map(|error| format!("{error:#}")).unwrap_or_default()
    }

    #[test]
    fn what_no_start_could_use_is_said_beforehand_and_without_the_password() {
        assert_eq!(checked("url = \"amqp://app:sesame@host:5672/%2f\"\n"), "");
        let said = checked("url = \"amqp://app:sesame@host:port/%2f\"\n");
        assert!(
            said.starts_with("[rabbitmq]: the URL is not of the form") && !said.contains("sesame"),
            "{said}"
        );
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        let rooted = || checked(&format!("url = \"amqps://host/\"\ntls_roots = \"{}\"\n", path.display()));
        assert!(rooted().starts_with("rabbitmq.tls_roots: "), "missing: {}", rooted());
        for wrong in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
        {
            std::fs::write(&path, wrong).unwrap();
            assert!(rooted().contains("none in PEM"), "{wrong}: {}", rooted());
        }
    }
}

//! What only the adapters can tell about settings, without connecting to anything. Every section is looked at, used or
//! not, and every fault is told.

mod directory;

use std::net::SocketAddr;
use std::path::Path;

use tidegate_adapters::channels::inbox;
use tidegate_adapters::channels::webhook::{WebhookError, WebhookOptions};
use tidegate_kafka::{self as kafka, TlsError};
use tidegate_postgres as postgres;
use tidegate_rabbitmq as rabbitmq;
use tidegate_redis::Endpoint;

use super::channels::webhook_options;
use super::socket;
use crate::config::{
    Fault, KafkaSettings, LedgerSettings, PostgresSettings, SaslMechanism, Sections, WarningUrl,
    WebhookSettings,
};

const PEM_FIX: &str = "name a file with certificates in PEM, or leave it empty";

const CERTIFICATE_FIX: &str = "name a file with a certificate in PEM, or leave it empty";
const KEY_FIX: &str = "name a file with the certificate's private key in PEM, without a passphrase";

pub fn check(sections: &Sections) -> Vec<Fault> {
    let mut faults = Vec::new();
    faults.extend(sections.listen.and_then(listen));
    if let Some(LedgerSettings::Embedded(embedded)) = &sections.ledger {
        // The default directory of a ledger that is not used need not be there.
        faults.extend(directory::fault(&embedded.path));
    }
    faults.extend(postgres_section(&sections.postgres));
    let redis_fix = "such as \"redis://:password@example.com:6379/0\", or rediss:// for TLS";
    faults.extend(wrong("redis.url", redis_fix, Endpoint::parse(&sections.redis.url).map(drop)));
    faults.extend(roots("redis.tls_roots", sections.redis.tls_roots.as_deref(), Endpoint::check_roots));
    faults.extend(kafka_section(&sections.kafka));
    let rabbitmq_fix = "such as \"amqp://user:password@example.com:5672/%2f\"";
    let rabbitmq = &sections.rabbitmq;
    faults.extend(wrong("rabbitmq.url", rabbitmq_fix, rabbitmq::check_url(&rabbitmq.url)));
    faults.extend(roots("rabbitmq.tls_roots", rabbitmq.tls_roots.as_deref(), |pem| {
        rabbitmq::check_roots(&String::from_utf8_lossy(pem))
    }));
    faults.extend(webhook_section(sections));
    let inbox_fix = "such as the output of `openssl rand -base64 32`";
    let secrets = sections.channels.inbox.secrets.iter();
    faults
        .extend(secrets.filter_map(|secret| wrong("inbox.secrets", inbox_fix, inbox::check_secret(secret))));
    faults
}

/// What keeps a start from listening just now, and is no fault of the settings: this may be the gateway itself.
pub fn taken(address: SocketAddr) -> Option<String> {
    let in_use = |error: &std::io::Error| error.kind() == std::io::ErrorKind::AddrInUse;
    let error = socket(address).err().filter(in_use)?;
    Some(format!("server.listen: {address}: {error}; a second gateway could not start there"))
}

fn listen(address: SocketAddr) -> Option<Fault> {
    let error = socket(address).err()?;
    let fix = "choose an address of this machine, and a port that this user may take";
    let in_use = error.kind() == std::io::ErrorKind::AddrInUse;
    (!in_use).then(|| Fault::new("server.listen", format!("cannot listen on {address}: {error}"), fix))
}

fn postgres_section(settings: &PostgresSettings) -> Vec<Fault> {
    let options = postgres::Options::new(&settings.url);
    let fix = "such as \"postgres://user:password@example.com:5432/tidegate\"";
    // Said after the key, that these are the settings need not be said again.
    let bare = |error| if let postgres::OpenError::Settings(what) = error { what } else { error.to_string() };
    let url = wrong("postgres.url", fix, postgres::check_url(&options).map_err(bare));
    let path = settings.tls_roots.as_deref();
    let checked = if settings.tls || path.is_some() { postgres::check_roots(path) } else { Ok(()) };
    url.into_iter().chain(wrong("postgres.tls_roots", PEM_FIX, checked.map_err(bare))).collect()
}

fn kafka_section(settings: &KafkaSettings) -> Vec<Fault> {
    if !kafka::TLS {
        return without_openssl(settings);
    }
    let mut faults = Vec::new();
    match settings.tls_roots.as_deref() {
        Some(path) => faults.extend(roots("kafka.tls_roots", Some(path), |pem| {
            kafka::Tls::check_roots(Some(&String::from_utf8_lossy(pem)))
        })),
        None if settings.tls => {
            let fix = "name a file with certificates in PEM, or install the system's";
            faults.extend(wrong("kafka.tls_roots", fix, kafka::Tls::check_roots(None)));
        }
        None => {}
    }
    if let (Some(certificate), Some(key)) = (&settings.tls_certificate, &settings.tls_key) {
        faults.extend(identity(certificate, key));
    }
    faults
}

/// What Kafka's client can't do in a build that lacks OpenSSL.
fn without_openssl(settings: &KafkaSettings) -> Vec<Fault> {
    let scram = settings.login.as_ref().is_some_and(|login| login.mechanism != SaslMechanism::Plain);
    let wanted = [("kafka.tls", settings.tls, "TLS to Kafka"), ("kafka.sasl_mechanism", scram, "SCRAM")];
    let fix = "take a build with the feature kafka-tls, which is there by default";
    let wanted = wanted.into_iter().filter(|(_, wanted, _)| *wanted);
    wanted.map(|(key, _, what)| Fault::new(key, format!("this build has no {what}"), fix)).collect()
}

fn identity(certificate: &Path, key: &Path) -> Vec<Fault> {
    let place = |path: &Path, what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let bad_certificate = |what: &dyn std::fmt::Display| {
        Fault::new("kafka.tls_certificate", place(certificate, what), CERTIFICATE_FIX)
    };
    let bad_key = |what: &dyn std::fmt::Display| Fault::new("kafka.tls_key", place(key, what), KEY_FIX);
    let read = (std::fs::read_to_string(certificate), std::fs::read_to_string(key));
    let (certificate_pem, key_pem) = match read {
        (Ok(certificate_pem), Ok(key_pem)) => (certificate_pem, key_pem),
        (certificate, key) => {
            let certificate = certificate.err().map(|error| bad_certificate(&error));
            return certificate.into_iter().chain(key.err().map(|error| bad_key(&error))).collect();
        }
    };
    match (kafka::Identity { certificate_pem, key_pem }).check() {
        Ok(()) => Vec::new(),
        Err(error @ TlsError::Certificate) => vec![bad_certificate(&error)],
        Err(error) => vec![bad_key(&error)],
    }
}

fn webhook_section(sections: &Sections) -> Vec<Fault> {
    let webhook = &sections.channels.webhook;
    let mut faults = Vec::new();
    let mut options = webhook_options(webhook);
    faults.extend(certificates(webhook, &mut options));
    faults.extend(options.faults().into_iter().map(|error| told("webhook.url", error)));
    if let Some(WarningUrl(url)) = &sections.stats.warning_webhook {
        faults.extend(options.url_fault(url).map(|error| told("stats.warning_webhook", error)));
    }
    faults
}

fn certificates(webhook: &WebhookSettings, options: &mut WebhookOptions) -> Option<Fault> {
    let path = webhook.ca_file.as_deref()?;
    match std::fs::read(path) {
        Ok(pem) => options.ca_pem = Some(pem),
        Err(error) => return Some(unreadable("webhook.ca_file", path, &error)),
    }
    None
}

/// By the setting that it is about; what is about a URL may be about either of two.
fn told(url_key: &'static str, error: WebhookError) -> Fault {
    let (key, fix) = match &error {
        WebhookError::Url(_) => (url_key, "such as \"https://example.com/hook\""),
        WebhookError::Forbidden(_) => (url_key, "add its network to webhook.allow, if that is meant"),
        WebhookError::Port(_) => (url_key, "add it to webhook.ports, or choose another"),
        WebhookError::System(_) => (url_key, "set webhook.ca_file, or install the system's certificates"),
        WebhookError::Secret(_) => {
            ("webhook.secrets", "write whsec_ and the output of `openssl rand -base64 32`")
        }
        WebhookError::Header(_) => ("webhook.headers", "write each as \"Name: value\""),
        WebhookError::Tls(_) => ("webhook.ca_file", PEM_FIX),
        WebhookError::Status(_) => ("webhook.permanent_statuses", "choose from 300 to 599"),
        WebhookError::Zero(_) => ("webhook.connect_timeout_ms", "raise it"),
    };
    Fault::new(key, error, fix)
}

fn roots<E: ToString>(
    key: &'static str,
    path: Option<&Path>,
    check: impl Fn(&[u8]) -> Result<(), E>,
) -> Option<Fault> {
    let path = path?;
    match std::fs::read(path) {
        Ok(pem) => {
            let error = check(&pem).err()?;
            Some(Fault::new(key, format!("{}: {}", path.display(), error.to_string()), PEM_FIX))
        }
        Err(error) => Some(unreadable(key, path, &error)),
    }
}

fn unreadable(key: &'static str, path: &Path, error: &std::io::Error) -> Fault {
    Fault::new(key, format!("{}: {error}", path.display()), PEM_FIX)
}

fn wrong<E: ToString>(key: &'static str, fix: &str, checked: Result<(), E>) -> Option<Fault> {
    checked.err().map(|error| Fault::new(key, error, fix))
}

#[cfg(test)]
mod tests;

//! Logs to stderr, metrics to whoever scrapes them. Stdout belongs to the log channel.

use std::io::IsTerminal as _;
use std::sync::OnceLock;

use metrics_exporter_prometheus::PrometheusBuilder;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{LogFormat, LogSettings};
use crate::http::MetricsHandle;

/// The process's recorder, installed by the first gateway in it and shared by all.
pub fn metrics() -> MetricsHandle {
    static HANDLE: OnceLock<MetricsHandle> = OnceLock::new();
    HANDLE
        .get_or_init(|| {
            let recorder = PrometheusBuilder::new().build_recorder();
            let handle = MetricsHandle(recorder.handle());
            if metrics::set_global_recorder(recorder).is_err() {
                tracing::warn!(
                    "another metrics recorder is installed; /metrics shows the ledger's books only"
                );
            }
            handle
        })
        .clone()
}

/// For the binary; a test or bench brings its own subscriber or none.
pub fn init_logs(settings: &LogSettings) -> anyhow::Result<()> {
    let filter: Targets = settings.level.parse()?;
    let terminal = std::io::stderr().is_terminal();
    let logs = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_writer(std::io::stderr);
    let text = match settings.format {
        LogFormat::Auto => terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let installed = if text {
        logs.with_ansi(terminal).finish().with(filter).try_init()
    } else {
        let logs = logs.json().flatten_event(true).with_current_span(true).with_span_list(false);
        logs.finish().with(filter).try_init()
    };
    installed.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}

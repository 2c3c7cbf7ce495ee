//! Logs to stderr, metrics to whoever scrapes them. Stdout belongs to the log channel.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};
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
        let logs = logs
            .with_writer(|| JsonLines)
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false);
        logs.finish().with(filter).try_init()
    };
    installed.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}

/// Lines of JSON to stderr. JSON lets characters stand that can't be seen or turn a line around; callers' names may hold
/// them, and a log is read by people. In text the log's own quoting escapes them.
struct JsonLines;

impl io::Write for JsonLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = if line.is_ascii() { None } else { std::str::from_utf8(line).ok() };
        match text {
            Some(text) => io::stderr().lock().write_all(visible(text).as_bytes())?,
            None => io::stderr().lock().write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// They stand in strings only, where JSON knows them by their number too.
fn visible(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for character in json.chars() {
        if !is_hidden(character) {
            shown.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            // Writing to a string does not fail.
            let _ = write!(shown, "\\u{unit:04x}");
        }
    }
    shown
}

fn is_hidden(character: char) -> bool {
    matches!(character,
        '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_written_by_its_number_and_read_as_before() {
        let text = "a\u{202e}b\u{200b}\u{2028}\u{e0041}ü\n\"";
        let json = serde_json::to_string(text).unwrap();
        let shown = visible(&json);
        assert_eq!(shown, "\"a\\u202eb\\u200b\\u2028\\udb40\\udc41ü\\n\\\"\"");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
    }
}

//! Logs hold no texts.

use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};

use lapin::options::QueueDeleteOptions;
use tidegate_domain::{Bus as _, Lane};

use crate::backend::{RabbitBackend, claim};

static WRITTEN: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Written;

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        WRITTEN.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Of everybody in this program, from now on.
fn listen() {
    static LISTENING: OnceLock<()> = OnceLock::new();
    LISTENING.get_or_init(|| {
        tracing_subscriber::fmt().with_writer(|| Written).with_ansi(false).init();
        // A line that another test logged just before would otherwise be taken for one without a subscriber.
        tracing::callsite::rebuild_interest_cache();
    });
}

#[tokio::test]
async fn a_record_that_comes_back_is_not_logged() {
    listen();
    let backend = RabbitBackend::shared();
    let bus = backend.bus().await;
    let (_connection, channel) = backend.stranger().await;
    channel.queue_delete(backend.name().into(), QueueDeleteOptions::default()).await.unwrap();
    let mut secret = claim(1, Lane::Normal);
    secret.body = Some("open sesame".into());
    let results = bus.publish(vec![secret]).await;
    assert!(matches!(results[..], [Err(_)]), "{results:?}");
    let written = String::from_utf8(WRITTEN.lock().unwrap().clone()).unwrap();
    assert!(written.contains("RabbitMQ is there"), "nothing is logged at all: {written}");
    let content = format!("{:?}", b"open sesame");
    for what in ["open sesame", "returned us", content.trim_matches(['[', ']'])] {
        assert!(!written.contains(what), "{written}");
    }
}

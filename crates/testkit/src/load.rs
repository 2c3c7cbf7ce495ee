//! A load client that costs little CPU, so that what is measured is the server: raw TCP, keep-alive, one
//! request in flight per connection, and a response parser that knows Content-Length and nothing else.

mod report;
mod source;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::task::JoinSet;

pub use self::report::Report;
pub use self::source::{Answer, Repeat, Source};
pub use self::wire::{Connection, Response, get, post, write_request};

/// Tells every connection to end after the request it is at.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    pub fn now(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// One connection per source, until each has nothing left to send, `stop` is set, or the server is gone. The
/// sources come back with what they have learned, in no particular order.
pub async fn run<S: Source>(server: SocketAddr, sources: Vec<S>, stop: &Stop) -> (Report, Vec<S>) {
    let begun = Instant::now();
    let mut connections = JoinSet::new();
    for source in sources {
        connections.spawn(converse(server, source, stop.clone()));
    }
    let mut total = Report::default();
    let mut sources = Vec::new();
    for (report, source) in connections.join_all().await {
        total.merge(report);
        sources.push(source);
    }
    total.finish(begun.elapsed());
    (total, sources)
}

/// Ends at the first failure: a request whose answer is missing may or may not have been done, and what to make
/// of that is the source's business.
async fn converse<S: Source>(server: SocketAddr, mut source: S, stop: Stop) -> (Report, S) {
    let mut report = Report::default();
    let mut connection: Option<Connection> = None;
    let mut request = Vec::with_capacity(1_024);
    while !stop.is_set() {
        let mut open = match connection.take() {
            Some(open) => open,
            None => match Connection::open(server).await {
                Ok(open) => open,
                Err(_) => break,
            },
        };
        request.clear();
        if !source.next(&mut request) {
            break;
        }
        let begun = Instant::now();
        match open.exchange(&request).await {
            Ok(response) => {
                report.count(response.status, begun.elapsed());
                let closes = response.closes;
                source.answered(Answer::Response { status: response.status, body: response.body });
                connection = (!closes).then_some(open);
            }
            Err(_) => {
                report.unknown += 1;
                source.answered(Answer::Unknown);
                break;
            }
        }
    }
    (report, source)
}

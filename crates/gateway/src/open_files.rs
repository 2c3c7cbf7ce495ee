//! Every connection is an open file to the operating system, which has a limit on them.

use anyhow::bail;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::{ChannelKind, Settings};

/// For the ledger's files, logs, brokers, Redis and the runtime.
const RESERVE: usize = 128;
/// With fewer, a gateway is of no use.
const CONNECTIONS_MIN: usize = 16;

/// Raises the limit of this process to what it may be, and lowers `server.connections_max` to what fits into it.
///
/// Lowered rather than refused: the default has to start on a small machine, too. Connections beyond the limit would not be
/// answered with 503 but left waiting, and the ledger could not open its files.
pub fn fit(settings: &mut Settings) -> anyhow::Result<()> {
    let Some(open_files_max) = raise() else { return Ok(()) };
    let webhooks = settings.pushed().any(|(_, kind, _)| kind == ChannelKind::Webhook);
    let dialled = if webhooks { settings.sender.concurrency } else { 0 };
    let (wanted, fits) = (settings.limits.connections_max, connections(open_files_max, dialled));
    if fits < CONNECTIONS_MIN.min(wanted) {
        bail!(
            "this process may open {open_files_max} files (RLIMIT_NOFILE): too few for the {RESERVE} that it needs itself and \
             for connections; raise the limit (ulimit -Hn, LimitNOFILE=)"
        );
    }
    if fits < wanted {
        tracing::warn!(
            configured = wanted,
            connections_max = fits,
            open_files_max,
            "server.connections_max lowered to what the limit on open files (RLIMIT_NOFILE) leaves"
        );
        settings.limits.connections_max = fits;
    }
    Ok(())
}

/// What is left for callers. Connections to webhooks have half of the room at most: they are seldom as many as they
/// may be.
fn connections(open_files_max: usize, dialled: usize) -> usize {
    let room = open_files_max.saturating_sub(RESERVE);
    room - dialled.min(room / 2)
}

/// None: there is no limit.
fn raise() -> Option<usize> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => return in_force(limit.maximum),
            Err(error) => tracing::warn!(%error, "cannot raise the limit on open files"),
        }
    }
    in_force(limit.current)
}

fn in_force(limit: Option<u64>) -> Option<usize> {
    limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_have_what_the_gateway_and_its_webhooks_leave() {
        assert_eq!((connections(100, 0), connections(1_024, 0)), (0, 896));
        assert_eq!(connections(1_048_576, 4_096), 1_044_352);
        assert_eq!(connections(4_096, 4_096), 1_984, "the defaults start with a small limit");
    }
}

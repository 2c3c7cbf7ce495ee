//! Every connection is an open file to the operating system, which has a limit on them.

use anyhow::bail;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::{ChannelKind, Settings};

/// For the ledger's files, logs, brokers, Redis and the runtime.
const RESERVE: usize = 128;
/// With fewer, a gateway is of no use.
const CONNECTIONS_MIN: usize = 16;

/// Raises the limit of this process to what it may be, and shares it out: `server.connections_max` and the connections of
/// webhooks are lowered to what fits into it.
///
/// Lowered rather than refused: the default has to start on a small machine, too. Connections beyond the limit would not be
/// answered with 503 but left waiting, webhooks would have no file to dial with, and the ledger could not open its files.
pub fn fit(settings: &mut Settings) -> anyhow::Result<()> {
    let Some(open_files_max) = raise() else { return Ok(()) };
    let webhooks = settings.pushed().any(|(_, kind, _)| kind == ChannelKind::Webhook);
    let wanted = Shares {
        accepted: settings.limits.connections_max,
        dialled: if webhooks { settings.concurrency(ChannelKind::Webhook) } else { 0 },
    };
    let fits = wanted.within(open_files_max);
    if fits.accepted < CONNECTIONS_MIN.min(wanted.accepted) {
        bail!(
            "this process may open {open_files_max} files (RLIMIT_NOFILE): too few for the {RESERVE} that it needs itself and \
             for connections; raise the limit (ulimit -Hn, LimitNOFILE=)"
        );
    }
    if fits.accepted < wanted.accepted {
        tracing::warn!(
            configured = wanted.accepted,
            connections_max = fits.accepted,
            open_files_max,
            "server.connections_max lowered to what the limit on open files (RLIMIT_NOFILE) leaves"
        );
        settings.limits.connections_max = fits.accepted;
    }
    if fits.dialled < wanted.dialled {
        tracing::warn!(
            configured = wanted.dialled,
            concurrency = fits.dialled,
            open_files_max,
            "sender.concurrency of webhooks lowered to what the limit on open files (RLIMIT_NOFILE) leaves"
        );
        settings.channels.webhook.connections_max = fits.dialled;
    }
    Ok(())
}

/// Connections of callers, and to the providers of webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shares {
    accepted: usize,
    dialled: usize,
}

impl Shares {
    /// Webhooks have half of the room at most, and what callers do not want of the other half.
    fn within(self, open_files_max: usize) -> Self {
        let room = open_files_max.saturating_sub(RESERVE);
        let dialled = self.dialled.min((room / 2).max(room.saturating_sub(self.accepted)));
        Self { accepted: self.accepted.min(room - dialled), dialled }
    }
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

    fn shares(accepted: usize, dialled: usize, open_files_max: usize) -> (usize, usize) {
        let fits = Shares { accepted, dialled }.within(open_files_max);
        (fits.accepted, fits.dialled)
    }

    #[test]
    fn callers_and_webhooks_share_what_the_gateway_leaves() {
        assert_eq!(shares(10_000, 0, 100), (0, 0));
        assert_eq!(shares(10_000, 0, 1_024), (896, 0));
        assert_eq!(shares(10_000, 4_096, 1_048_576), (10_000, 4_096));
        assert_eq!(shares(10_000, 4_096, 4_096), (1_984, 1_984), "the defaults start with a small limit");
        assert_eq!(shares(10_000, 4_096, 300), (86, 86));
        assert_eq!(shares(16, 4_096, 300), (16, 156), "what callers do not want");
        assert_eq!(shares(10_000, 10, 300), (162, 10), "what webhooks do not want");
    }
}

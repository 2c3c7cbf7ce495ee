use std::path::{Path, PathBuf};

use super::send::{measure, middle};
use super::server::Server;
use super::{Scale, median};
use crate::figure::Figure;

/// Many short ones, each compared within itself: what else the machine does then falls on all three alike.
const ROUNDS: usize = 15;

/// The no-op server with three policies that never deny, and with one that always does, against none.
pub(super) fn over_http(dir: &Path, scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let wide = "capacity = 1000000000\nrefillTokensPerSecond = 1000000";
    let passing = config(dir, "passing.toml", &["IP", "PRINCIPAL", "API_KEY"], wide)?;
    let denying = config(dir, "denying.toml", &["IP"], "capacity = 1\nrefillTokensPerSecond = 0")?;
    let short = Scale { send_seconds: scale.send_seconds / 3.0, ..scale };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let servers = [Server::noop()?, Server::noop_with(&passing)?, Server::noop_with(&denying)?];
    runtime.block_on(async {
        for server in &servers {
            server.ready().await?;
        }
        let mut reports = [const { Vec::new() }; 3];
        let (mut with, mut denied) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let mut rates = [0.0; 3];
            for (place, (server, status)) in servers.iter().zip([200, 200, 429]).enumerate() {
                let report = measure(server.address, short, status).await?;
                rates[place] = report.per_second();
                reports[place].push(report);
            }
            with.push(rates[1] / rates[0]);
            denied.push(rates[2] / rates[0]);
        }
        for (name, reports) in ["without policies", "three policies", "denied"].into_iter().zip(reports) {
            println!("POST /api/send, no ledger: {name} {}", middle(reports)?);
        }
        Ok(vec![
            Figure::ratio("http_with_policies_vs_without", median(with), 0.9),
            Figure::ratio("denied_vs_allowed_noop", median(denied), 1.0),
        ])
    })
}

/// A configuration file with policies by each key.
fn config(dir: &Path, name: &str, keys: &[&str], rule: &str) -> anyhow::Result<PathBuf> {
    let policy = |key: &&str| {
        format!(
            "[[policies]]\nname = \"by-{key}\"\npathPattern = \"/api/**\"\nkeyStrategy = \"{key}\"\n{rule}\n"
        )
    };
    let path = dir.join(name);
    std::fs::write(&path, keys.iter().map(policy).collect::<String>())?;
    Ok(path)
}

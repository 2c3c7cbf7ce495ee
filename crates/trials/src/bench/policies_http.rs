use std::path::{Path, PathBuf};

use super::Scale;
use super::send::{measure, middle};
use super::server::Server;
use crate::figure::Figure;

const ROUNDS: usize = 5;

/// The no-op server with three policies that never deny, and with one that always does, against none.
pub(super) fn over_http(dir: &Path, scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let wide = "capacity = 1000000000\nrefillTokensPerSecond = 1000000";
    let passing = config(dir, "passing.toml", &["IP", "PRINCIPAL", "API_KEY"], wide)?;
    let denying = config(dir, "denying.toml", &["IP"], "capacity = 1\nrefillTokensPerSecond = 0")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let servers = [Server::noop()?, Server::noop_with(&passing)?, Server::noop_with(&denying)?];
    runtime.block_on(async {
        for server in &servers {
            server.ready().await?;
        }
        let mut reports = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            for (reports, (server, status)) in reports.iter_mut().zip(servers.iter().zip([200, 200, 429])) {
                reports.push(measure(server.address, scale, status).await?);
            }
        }
        let [without, with, denied] = reports.map(middle);
        let (without, with, denied) = (without?, with?, denied?);
        println!("POST /api/send, no ledger: without policies {without}");
        println!("POST /api/send, no ledger: three policies {with}");
        println!("POST /api/send, no ledger: denied {denied}");
        Ok(vec![
            Figure::ratio("http_with_policies_vs_without", with.per_second() / without.per_second(), 0.9),
            Figure::ratio("denied_vs_allowed_noop", denied.per_second() / without.per_second(), 1.0),
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

//! `tidegate export` and `tidegate import`.

mod export;
mod file;
mod import;
mod progress;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::SettingsArgs;
use crate::config::{Loaded, Settings};
use crate::stop::Stop;
use crate::{signals, telemetry};

/// What files are left to the end of a blocking call that was given up.
const CLEAN_UP_TIMEOUT: Duration = Duration::from_secs(10);
/// Batches between who reads and who writes.
const BATCHES_AHEAD: usize = 4;

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The archive to write, which must not exist; - is standard output.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Export even while gateways use a PostgreSQL ledger: a copy as of now, good as a backup. What they do
    /// afterwards is not in it, so don't serve both.
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    settings: SettingsArgs,
}

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The archive to read; - is standard input.
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    #[command(flatten)]
    settings: SettingsArgs,
}

pub fn export(args: ExportArgs) -> anyhow::Result<ExitCode> {
    let settings = args.settings.clone();
    run(&settings, async move |settings, stop| export::run(&settings, &args.to, args.live, stop).await)
}

pub fn import(args: ImportArgs) -> anyhow::Result<ExitCode> {
    let settings = args.settings.clone();
    run(&settings, async move |settings, stop| import::run(&settings, &args.from, stop).await)
}

fn run(
    args: &SettingsArgs,
    transfer: impl AsyncFnOnce(Settings, Stop) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    let settings = Loaded::from_sources(&args.sources()?)?.settings;
    telemetry::init_logs(&settings.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(async { transfer(settings, signals::listen()?).await });
    // Whatever is still at its last batch cleans up behind itself.
    runtime.shutdown_timeout(CLEAN_UP_TIMEOUT);
    done.map(|()| ExitCode::SUCCESS)
}

/// One step, unless a signal comes first.
async fn unless_stopped<T, E: Into<anyhow::Error>>(
    stop: &mut Stop,
    step: impl Future<Output = Result<T, E>>,
) -> anyhow::Result<T> {
    tokio::select! {
        done = step => done.map_err(Into::into),
        () = stop.wait() => anyhow::bail!("interrupted; nothing has changed"),
    }
}

fn is_standard(path: &std::path::Path) -> bool {
    path.as_os_str() == "-"
}

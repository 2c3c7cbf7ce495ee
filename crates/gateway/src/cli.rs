//! The command line.

mod file;
mod health;
mod secrets;
mod transfer;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::config::{self, Loaded, Problems, Sources};
use crate::live_policies::ReloadError;
use crate::{telemetry, wiring};

/// A configuration that can't be used, as opposed to a start that failed.
const CONFIG_PROBLEMS: u8 = 2;

const RUNTIME_END_TIMEOUT: Duration = Duration::from_millis(500);

/// A message gateway: quotas, a durable queue and delivery in one binary.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the gateway.
    Serve(SettingsArgs),
    /// Check the configuration and say where each value comes from.
    CheckConfig(SettingsArgs),
    /// Ask the running gateway of the same settings how it is; for probes. Exit code 0: well, 1: not.
    Health(health::HealthArgs),
    /// Bring the schema of the PostgreSQL ledger up to date, and stop.
    Migrate(SettingsArgs),
    /// Write the whole ledger into an archive, to be imported into another one.
    Export(transfer::ExportArgs),
    /// Read an archive into an empty ledger.
    Import(transfer::ImportArgs),
    /// Make an embedded ledger startable that lacks something, for good: what is missing is said and written down.
    AcceptLoss(SettingsArgs),
    /// Show the configuration reference.
    Config {
        /// Print the compiled-in defaults: a commented file with every setting.
        #[arg(long, required = true)]
        print_default: bool,
    },
    /// Read a password from standard input and print its hash for [[principals]].
    HashPassword,
    /// Make an API key: prints the key, to be given away, and its hash for [[principals]].
    NewApiKey,
}

#[derive(Debug, Clone, Args)]
struct SettingsArgs {
    /// Where to listen, e.g. 127.0.0.1:8080 [setting: server.listen].
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// What this process does: all, gateway or sender [setting: server.role].
    #[arg(long, value_name = "ROLE")]
    role: Option<String>,
    /// The directory of the ledger [setting: ledger.path].
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// The configuration file [default: ./tidegate.toml, if there is one].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Cli {
    pub fn run(self) -> ExitCode {
        let done = match self.command {
            Command::Serve(args) => serve(args),
            Command::CheckConfig(args) => check_config(args),
            Command::Health(args) => health::health(args),
            Command::Migrate(args) => migrate(args),
            Command::Export(args) => transfer::export(args),
            Command::Import(args) => transfer::import(args),
            Command::AcceptLoss(args) => accept_loss(args),
            Command::Config { .. } => secrets::print(config::DEFAULT),
            Command::HashPassword => secrets::hash_password(),
            Command::NewApiKey => secrets::new_api_key(),
        };
        done.unwrap_or_else(|error| {
            eprintln!("tidegate: {error:#}");
            if error.is::<Problems>() { ExitCode::from(CONFIG_PROBLEMS) } else { ExitCode::FAILURE }
        })
    }
}

fn serve(args: SettingsArgs) -> anyhow::Result<ExitCode> {
    let sources = args.sources()?;
    let Loaded { settings, warnings, .. } = Loaded::checked(&sources, wiring::check)?;
    let read_policies = Box::new(move || {
        let unreadable = ReloadError::Unreadable;
        let now = args.sources().map_err(|error| unreadable(error.to_string()))?;
        // Without it all policies would be gone, and with them all limits.
        if let (Some((path, _)), None) = (&sources.file, &now.file) {
            return Err(unreadable(format!("the configuration {} is no longer there", path.display())));
        }
        Ok(Loaded::from_sources(&now)?.settings.policies)
    });
    telemetry::init_logs(&settings.log)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(wiring::serve(settings, read_policies));
    // A blocking call that hangs (a dead disk) must not keep the process.
    runtime.shutdown_timeout(RUNTIME_END_TIMEOUT);
    ended
}

fn migrate(args: SettingsArgs) -> anyhow::Result<ExitCode> {
    let settings = Loaded::from_sources(&args.sources()?)?.settings;
    telemetry::init_logs(&settings.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let place = runtime.block_on(wiring::migrate(&settings))?;
    secrets::print(&format!("{place} is up to date\n"))
}

fn accept_loss(args: SettingsArgs) -> anyhow::Result<ExitCode> {
    let settings = Loaded::from_sources(&args.sources()?)?.settings;
    telemetry::init_logs(&settings.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let said = match runtime.block_on(wiring::accept_loss(&settings))? {
        Some(loss) => format!(
            "accepted: {loss}\nThe ledger can be started. Numbers and tokens go on above all that were given out.\n"
        ),
        None => "nothing is missing; nothing has changed\n".to_owned(),
    };
    secrets::print(&said)
}

fn check_config(args: SettingsArgs) -> anyhow::Result<ExitCode> {
    let loaded = Loaded::checked(&args.sources()?, wiring::check)?;
    let warnings = loaded.warnings.iter().map(ToString::to_string);
    for warning in warnings.chain(wiring::taken(loaded.settings.listen)) {
        eprintln!("tidegate: warning: {warning}");
    }
    let mut text = "ok\n".to_owned();
    for changed in &loaded.changed {
        text.push_str(&format!("{} = {}  ({})\n", changed.key, changed.value, changed.origin));
    }
    secrets::print(&text)
}

impl SettingsArgs {
    fn sources(&self) -> Result<Sources, Problems> {
        let file = file::read(self.config.as_deref())?;
        let environment = std::env::vars_os()
            .map(|(variable, value)| {
                (variable.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
            })
            .filter(|(variable, _)| variable.starts_with(config::ENVIRONMENT_PREFIX))
            .collect();
        let listen = self.listen.clone().map(|value| ("--listen", "server.listen", value));
        let role = self.role.clone().map(|value| ("--role", "server.role", value));
        let data = self.data.clone().map(|value| ("--data", "ledger.path", value));
        Ok(Sources { file, environment, flags: [listen, role, data].into_iter().flatten().collect() })
    }
}

use anyhow::Context as _;
use tidegate_adapters::embedded;
use tidegate_domain::transfer::{Export, Import, Manifest};
use tidegate_postgres as postgres;

use super::ledger::{LedgerClock, embedded_options, explained, place, postgres_options};
use crate::config::{LedgerSettings, Settings};

const PANICKED: &str = "opening the ledger panicked";

/// Begins to read the ledger of the settings; while others use it, only if told so.
pub async fn export(settings: &Settings, live: bool) -> anyhow::Result<Box<dyn Export>> {
    Ok(match &settings.ledger {
        LedgerSettings::Embedded(embedded) => {
            let (options, clock) = (embedded_options(embedded, settings), LedgerClock::of(settings).shared());
            let opening = tokio::task::spawn_blocking(move || embedded::export(&options, &clock));
            opening.await.context(PANICKED)?.map_err(|error| explained(error, &embedded.path))?
        }
        LedgerSettings::Postgres(postgres) => {
            let opened = postgres::export(&postgres_options(postgres, settings), live).await;
            opened.with_context(|| place(settings).unwrap_or_default())?
        }
    })
}

/// Begins to fill the ledger of the settings, which has to be empty.
pub async fn import(settings: &Settings, manifest: Manifest) -> anyhow::Result<Box<dyn Import>> {
    Ok(match &settings.ledger {
        LedgerSettings::Embedded(embedded) => {
            let (options, clock) = (embedded_options(embedded, settings), LedgerClock::of(settings).shared());
            let opening = tokio::task::spawn_blocking(move || embedded::import(options, clock, manifest));
            opening.await.context(PANICKED)?.map_err(|error| explained(error, &embedded.path))?
        }
        LedgerSettings::Postgres(postgres) => {
            let opened = postgres::import(postgres_options(postgres, settings), manifest).await;
            opened.with_context(|| place(settings).unwrap_or_default())?
        }
    })
}

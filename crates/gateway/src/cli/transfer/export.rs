use std::path::Path;

use anyhow::{Context as _, ensure};
use tidegate_domain::transfer::{Entry, Inventory, Stock};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::file::ArchiveFile;
use super::progress::Progress;
use super::{BATCHES_AHEAD, is_standard, table, unless_stopped};
use crate::archive::ArchiveWriter;
use crate::config::Settings;
use crate::stop::Stop;
use crate::wiring;

pub async fn run(settings: &Settings, to: &Path, live: bool, mut stop: Stop) -> anyhow::Result<()> {
    let file = ArchiveFile::create(to)?;
    let mut source = unless_stopped(&mut stop, wiring::export(settings, live)).await?;
    let manifest = source.manifest().clone();
    let mut progress = Progress::begin("exported", manifest.stock.inventory.entries());
    let mut writer = ArchiveWriter::begin(file, &manifest)?;
    // Reading and writing side by side.
    let (batches, mut incoming) = mpsc::channel::<Vec<Entry>>(BATCHES_AHEAD);
    let writing = spawn_blocking(move || {
        while let Some(batch) = incoming.blocking_recv() {
            writer.write(batch)?;
        }
        anyhow::Ok(writer)
    });
    let mut read = Inventory::default();
    loop {
        let batch = unless_stopped(&mut stop, source.next()).await?;
        if batch.is_empty() {
            break;
        }
        batch.iter().for_each(|entry| read.count(entry));
        progress.add(batch.len());
        // Gone only when it failed: then it says why.
        if unless_stopped(&mut stop, batches.send(batch)).await.is_err() {
            break;
        }
    }
    drop(batches);
    ensure!(!stop.is_set(), "interrupted; nothing has changed");
    let writer =
        writing.await.context("writing the archive panicked")?.context("cannot write the archive")?;
    progress.end();
    let stock = manifest.stock;
    let written = Stock { inventory: *writer.written(), books: stock.books };
    table::print(("ledger", &stock), ("archive", &written), is_standard(to));
    ensure!(read == stock.inventory, "the ledger holds other entries than it counts: it is damaged");
    ensure!(written == stock, "not all that was read has been written");
    ensure!(written.is_balanced(), "the ledger's books don't balance: it is damaged");
    let finish = spawn_blocking(move || writer.finish().context("cannot write the archive")?.keep());
    finish.await.context("writing the archive panicked")?
}

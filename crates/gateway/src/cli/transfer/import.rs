use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context as _, ensure};
use tidegate_domain::transfer::{Entry, Inventory, Manifest, Stock};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::progress::Progress;
use super::{BATCHES_AHEAD, is_standard, table, unless_stopped};
use crate::archive::{ArchiveReader, Damage};
use crate::config::Settings;
use crate::stop::Stop;
use crate::wiring;

const BUFFER_BYTES: usize = 1 << 18;

type Archive = ArchiveReader<Box<dyn BufRead + Send>>;
type Batch = Result<Vec<Entry>, Damage>;

pub async fn run(settings: &Settings, from: &Path, mut stop: Stop) -> anyhow::Result<()> {
    let path = from.to_owned();
    let opening =
        async { spawn_blocking(move || open(&path)).await.context("reading the archive panicked")? };
    let (archive, manifest) = unless_stopped(&mut stop, opening).await?;
    let mut target = unless_stopped(&mut stop, wiring::import(settings, manifest.clone())).await?;
    let mut progress = Progress::begin("imported", manifest.stock.inventory.entries());
    let mut batches = read(archive);
    let mut read = Inventory::default();
    loop {
        let next = async { Ok::<_, Damage>(batches.recv().await) };
        let next = unless_stopped(&mut stop, next).await?;
        let batch = next.context("reading the archive panicked")?.with_context(|| place(from))?;
        if batch.is_empty() {
            break;
        }
        batch.iter().for_each(|entry| read.count(entry));
        let count = batch.len();
        unless_stopped(&mut stop, target.put(batch)).await?;
        progress.add(count);
    }
    let arrived = unless_stopped(&mut stop, target.seal()).await?;
    progress.end();
    let told = Stock { inventory: read, books: manifest.stock.books };
    table::print(("archive", &told), ("ledger", &arrived), false);
    ensure!(told == manifest.stock, "{}: other entries than its first line tells of", place(from));
    ensure!(arrived == told, "not all that was read has been written; nothing has changed");
    ensure!(arrived.is_balanced(), "the books don't balance; nothing has changed");
    target.commit().await.context("the last step of the import")
}

fn open(path: &Path) -> anyhow::Result<(Archive, Manifest)> {
    let source: Box<dyn BufRead + Send> = if is_standard(path) {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, std::io::stdin()))
    } else {
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        Box::new(BufReader::with_capacity(BUFFER_BYTES, file))
    };
    ArchiveReader::begin(source).with_context(|| place(path))
}

/// Reads ahead, as far as there is room, beside who writes. The last batch is empty, or what went wrong.
fn read(mut archive: Archive) -> mpsc::Receiver<Batch> {
    let (batches, incoming) = mpsc::channel(BATCHES_AHEAD);
    spawn_blocking(move || {
        loop {
            let batch = archive.next();
            let is_last = batch.as_ref().map_or(true, Vec::is_empty);
            if batches.blocking_send(batch).is_err() || is_last {
                return;
            }
        }
    });
    incoming
}

fn place(path: &Path) -> String {
    if is_standard(path) { "standard input".to_owned() } else { path.display().to_string() }
}

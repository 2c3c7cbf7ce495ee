//! A machine that has other things to do.

use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::command::target;

const FILE_BYTES: usize = 16 << 20;
/// Small, so that the disk is kept busy with syncs rather than the processors with copying.
const WRITE_BYTES: usize = 16 << 10;

/// Keeps every processor and the disk busy until it is dropped.
#[derive(Debug)]
pub struct Busy {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    file: PathBuf,
}

impl Busy {
    pub fn start() -> Result<Self, String> {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        let over = Arc::new(AtomicBool::new(false));
        let file = target().join("busy");
        let mut threads: Vec<_> = (0..processors)
            .map(|_| {
                let over = over.clone();
                std::thread::spawn(move || while !over.load(Ordering::Relaxed) {})
            })
            .collect();
        File::create(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let (path, until) = (file.clone(), over.clone());
        threads.push(std::thread::spawn(move || {
            // Whether the disk takes it is not the point; that it has to is.
            while !until.load(Ordering::Relaxed) {
                let _ = write_and_sync(&path);
            }
        }));
        println!("busy: {processors} processors, and a disk that is written and synced all the time");
        Ok(Self { over, threads, file })
    }
}

fn write_and_sync(path: &Path) -> std::io::Result<()> {
    let mut file = File::options().write(true).open(path)?;
    let block = vec![7; WRITE_BYTES];
    for _ in 0..FILE_BYTES / WRITE_BYTES {
        file.write_all(&block)?;
        file.sync_data()?;
    }
    file.seek(SeekFrom::Start(0)).map(|_| ())
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.file);
    }
}

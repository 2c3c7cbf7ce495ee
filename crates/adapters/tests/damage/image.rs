use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tempfile::TempDir;

pub const DATABASE: &str = "ledger.db";
pub const WAL: &str = "ledger.db-wal";
pub const PROGRESS: &str = "ledger.db-progress";

/// The files of a directory at one moment. Taken from a running ledger, it is what a kill leaves.
#[derive(Debug, Clone)]
pub struct Image(BTreeMap<String, Vec<u8>>);

impl Image {
    pub fn of(dir: &Path) -> Self {
        let files = fs::read_dir(dir).unwrap().map(Result::unwrap).filter(|file| file.path().is_file());
        let read =
            |file: fs::DirEntry| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap());
        Self(files.map(read).collect())
    }

    /// The files in a directory of their own.
    pub fn restored(&self) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in &self.0 {
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        dir
    }

    pub fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    pub fn bytes(&self, name: &str) -> &[u8] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    pub fn with(&self, name: &str, bytes: &[u8]) -> Self {
        let mut image = self.clone();
        image.0.insert(name.to_owned(), bytes.to_owned());
        image
    }

    pub fn without(&self, name: &str) -> Self {
        let mut image = self.clone();
        image.0.remove(name);
        image
    }

    pub fn flipped(&self, name: &str, at: usize, bit: usize) -> Self {
        let mut bytes = self.bytes(name).to_vec();
        bytes[at] ^= 1 << (bit % 8);
        self.with(name, &bytes)
    }

    pub fn cut(&self, name: &str, length: usize) -> Self {
        self.with(name, &self.bytes(name)[..length])
    }
}

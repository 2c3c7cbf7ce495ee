use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::is_standard;

const BUFFER_BYTES: usize = 1 << 18;

/// Where an archive goes. A file has its name only once it is whole; dropped before, it is gone.
#[derive(Debug)]
pub enum ArchiveFile {
    Standard(BufWriter<std::io::Stdout>),
    File { part: Part, path: PathBuf, file: BufWriter<File> },
}

/// A file that is removed unless it gets its name.
#[derive(Debug)]
pub struct Part(Option<PathBuf>);

impl ArchiveFile {
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        if is_standard(path) {
            return Ok(Self::Standard(BufWriter::with_capacity(BUFFER_BYTES, std::io::stdout())));
        }
        anyhow::ensure!(!path.exists(), "{} exists already; choose another name", path.display());
        let mut name = path.file_name().context("--to names no file")?.to_owned();
        name.push(".part");
        let part = path.with_file_name(name);
        // Messages are nobody else's business.
        let file = File::options().write(true).create_new(true).mode(0o600).open(&part);
        let file = file.with_context(|| {
            format!("cannot make {}; an export that was killed may have left it behind", part.display())
        })?;
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        Ok(Self::File { part: Part(Some(part)), path: path.to_owned(), file })
    }

    /// Synced, and under its name.
    pub fn keep(self) -> anyhow::Result<()> {
        let Self::File { mut part, path, mut file } = self else { return Ok(()) };
        let mut keep = || {
            file.flush()?;
            file.get_ref().sync_all()?;
            if let Some(part) = &part.0 {
                fs::rename(part, &path)?;
            }
            part.0 = None;
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(dir)?.sync_all()
        };
        keep().with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Write for ArchiveFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Standard(target) => target.write(bytes),
            Self::File { file, .. } => file.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Standard(target) => target.flush(),
            Self::File { file, .. } => file.flush(),
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(part) = &self.0
            && let Err(error) = fs::remove_file(part)
        {
            tracing::warn!(%error, file = %part.display(), "cannot be removed");
        }
    }
}

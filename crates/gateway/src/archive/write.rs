use std::io::{Error, ErrorKind, Result, Write};

use crc32fast::Hasher;
use tidegate_domain::transfer::{Entry, Inventory, Manifest};

use super::LINE_BYTES_MAX;
use super::line::Line;

/// Writes entries as they come, and what they were at the end.
#[derive(Debug)]
pub struct ArchiveWriter<W> {
    target: W,
    sum: Hasher,
    written: Inventory,
    line: Vec<u8>,
}

impl<W: Write> ArchiveWriter<W> {
    pub fn begin(target: W, manifest: &Manifest) -> Result<Self> {
        let mut writer = Self { target, sum: Hasher::new(), written: Inventory::default(), line: Vec::new() };
        writer.put(&Line::head(manifest))?;
        Ok(writer)
    }

    pub fn write(&mut self, entries: Vec<Entry>) -> Result<()> {
        for entry in entries {
            self.written.count(&entry);
            self.put(&Line::of(entry))?;
        }
        Ok(())
    }

    pub fn written(&self) -> &Inventory {
        &self.written
    }

    /// Without it the archive is none. Flushed, not synced.
    pub fn finish(mut self) -> Result<W> {
        self.put(&Line::end(&self.written))?;
        self.target.flush()?;
        Ok(self.target)
    }

    fn put(&mut self, line: &Line) -> Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, line)?;
        // The sum takes the place of the last brace.
        self.line.pop();
        if self.line.len() > LINE_BYTES_MAX {
            let said = format!("an entry of {} bytes is more than an archive holds", self.line.len());
            return Err(Error::new(ErrorKind::InvalidData, said));
        }
        self.sum.update(&self.line);
        writeln!(self.line, ",\"sum\":\"{:08x}\"}}", self.sum.clone().finalize())?;
        self.target.write_all(&self.line)
    }
}

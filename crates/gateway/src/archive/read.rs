use std::io::{BufRead, Read as _};

use crc32fast::Hasher;
use tidegate_domain::transfer::{Entry, Inventory, Manifest};

use super::line::Line;
use super::{LINE_BYTES_MAX, VERSION};

const SUM: &str = ",\"sum\":\"";
/// `,"sum":"01234567"}`
const SUM_BYTES: usize = SUM.len() + 8 + 2;
const BATCH_ENTRIES: usize = 2_000;
const BATCH_BYTES: usize = 4 << 20;

/// Reads what was written, or says what is wrong with it.
#[derive(Debug)]
pub struct ArchiveReader<R> {
    source: R,
    sum: Hasher,
    line: Vec<u8>,
    number: u64,
    read: Inventory,
    is_over: bool,
}

/// Why an archive is of no use.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    #[error("line {line}: {what}")]
    Line { line: u64, what: String },
    #[error("line {line}: cannot be read: {cause}")]
    Unreadable { line: u64, cause: std::io::Error },
    #[error("an archive of version {0}, and this program reads version {VERSION}")]
    Version(u64),
}

impl<R: BufRead> ArchiveReader<R> {
    pub fn begin(source: R) -> Result<(Self, Manifest), Damage> {
        let read = Inventory::default();
        let mut reader =
            Self { source, sum: Hasher::new(), line: Vec::new(), number: 0, read, is_over: false };
        match reader.next_line()? {
            Line::Archive(head) => {
                let manifest = head.manifest().map_err(|what| reader.damage(what))?;
                Ok((reader, manifest))
            }
            _ => Err(reader.damage("no archive begins like this")),
        }
    }

    /// The next entries; none when all have been read and the end says that they are all.
    pub fn next(&mut self) -> Result<Vec<Entry>, Damage> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while !self.is_over && batch.len() < BATCH_ENTRIES && bytes < BATCH_BYTES {
            let line = self.next_line()?;
            if let Line::End(end) = &line {
                if end.inventory() != self.read {
                    return Err(self.damage("there are other entries than the end tells of"));
                }
                self.require_nothing_more()?;
                self.is_over = true;
                break;
            }
            let entry = line.entry().map_err(|what| self.damage(what))?;
            let entry = entry.ok_or_else(|| self.damage("an archive begins in the middle of another"))?;
            self.read.count(&entry);
            bytes += entry.weight_bytes();
            batch.push(entry);
        }
        Ok(batch)
    }

    fn next_line(&mut self) -> Result<Line, Damage> {
        self.number += 1;
        self.line.clear();
        let bound = (LINE_BYTES_MAX + SUM_BYTES + 1) as u64;
        let read = self.source.by_ref().take(bound).read_until(b'\n', &mut self.line);
        match read {
            Err(cause) => return Err(Damage::Unreadable { line: self.number, cause }),
            Ok(0) => return Err(self.damage("the archive ends before its end: it is truncated")),
            Ok(_) if self.line.pop() != Some(b'\n') => {
                return Err(self.damage("the archive ends in the middle of this line: it is truncated"));
            }
            Ok(_) => {}
        }
        let rest = self.line.len().checked_sub(SUM_BYTES);
        let parts = rest.and_then(|at| Some((at, std::str::from_utf8(self.line.get(at..)?).ok()?)));
        let known = parts.and_then(|(at, said)| Some((at, said.strip_prefix(SUM)?.strip_suffix("\"}")?)));
        let Some((at, said)) = known else { return Err(self.damage("it has no sum at its end")) };
        self.sum.update(&self.line[..at]);
        if format!("{:08x}", self.sum.clone().finalize()) != said {
            return Err(self.damage("it is damaged, or lines before it are missing"));
        }
        self.line.truncate(at);
        self.line.push(b'}');
        if self.number == 1 {
            self.check_version()?;
        }
        serde_json::from_slice(&self.line).map_err(|error| self.damage(format!("it makes no sense: {error}")))
    }

    /// Before anything else of the line is looked at: other versions may have other words.
    fn check_version(&self) -> Result<(), Damage> {
        let head: Option<serde_json::Value> = serde_json::from_slice(&self.line).ok();
        let version = head.as_ref().and_then(|head| head.get("archive")?.get("version")?.as_u64());
        match version {
            Some(version) if version != u64::from(VERSION) => Err(Damage::Version(version)),
            _ => Ok(()),
        }
    }

    fn require_nothing_more(&mut self) -> Result<(), Damage> {
        let more = self.source.fill_buf().map(|more| !more.is_empty());
        match more {
            Ok(false) => Ok(()),
            Ok(true) => {
                self.number += 1;
                Err(self.damage("something follows the end"))
            }
            Err(cause) => Err(Damage::Unreadable { line: self.number, cause }),
        }
    }

    fn damage(&self, what: impl Into<String>) -> Damage {
        Damage::Line { line: self.number, what: what.into() }
    }
}

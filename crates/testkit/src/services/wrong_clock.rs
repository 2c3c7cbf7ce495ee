use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;

use super::package::program;

/// The library that tells a process another time of day. Debian keeps it in a directory named after the machine.
pub fn wrong_clock() -> anyhow::Result<PathBuf> {
    program("faketime", "faketime")?;
    let places = fs::read_dir("/usr/lib")?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut libraries = places.map(|place| place.join("faketime/libfaketimeMT.so.1"));
    libraries.find(|path| path.is_file()).context("faketime is there, and its library is not")
}

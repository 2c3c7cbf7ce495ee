use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use tempfile::TempDir;

use crate::sys;

/// A disk whose power can be cut: an ext4 image mounted by loop. `kill -9` proves nothing about fsync, because the
/// page cache outlives the process; this loses what was not synced. Needs root.
#[derive(Debug)]
pub struct Disk {
    directory: TempDir,
    mounted: bool,
}

impl Disk {
    pub fn new(size_bytes: u64) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("tidegate-disk-").tempdir()?;
        let mut disk = Self { directory, mounted: false };
        File::create(disk.image())?.set_len(size_bytes)?;
        fs::create_dir(disk.path())?;
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(disk.image()))?;
        disk.mount()?;
        Ok(disk)
    }

    /// Where the disk is mounted.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("mount")
    }

    /// Cuts the power. Whoever writes there now gets errors; kill it, then [`restore`](Disk::restore).
    ///
    /// An fsync that is under way meanwhile may answer success for what is gone: the kernel finds its transaction
    /// neither running nor committing, and takes the aborted one for committed (seen on Linux 6.18 in 24 of 300
    /// cuts with a bare write loop). Real machines tell nobody after the power is gone, and neither may the
    /// process under test: [`strike`](crate::Gateway::strike) it before the cut.
    pub fn cut(&self) -> anyhow::Result<()> {
        sys::shut_down_file_system(&self.path()).context("cannot cut the power")
    }

    /// Brings the disk back with what had reached it. Nobody may have a file open on it.
    pub fn restore(&mut self) -> anyhow::Result<()> {
        self.unmount()?;
        self.mount()
    }

    fn image(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    fn mount(&mut self) -> anyhow::Result<()> {
        run(Command::new("mount").args(["-o", "loop"]).arg(self.image()).arg(self.path()))?;
        self.mounted = true;
        Ok(())
    }

    fn unmount(&mut self) -> anyhow::Result<()> {
        run(Command::new("umount").arg(self.path()))?;
        self.mounted = false;
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted && self.unmount().is_err() {
            // A process that still holds a file keeps the plain way shut; detach it at least from the tree.
            let _ = Command::new("umount").arg("-l").arg(self.path()).status();
        }
    }
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", said.trim());
    Ok(())
}

/// Whether this machine lets us make such disks: root, loop devices and ext4's tools.
pub fn can_cut_power() -> bool {
    Path::new("/dev/loop-control").exists() && Disk::new(16 << 20).is_ok()
}

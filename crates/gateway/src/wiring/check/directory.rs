//! Whether a ledger can be put into a directory, as far as that can be told without writing.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{Access, access, statfs};

use crate::config::Fault;

/// The bytes of one name, on every file system of Linux.
const NAME_BYTES_MAX: usize = 255;

/// What the kernel shows there, and where nothing can be made: /proc, /sys and control groups.
const SHOWN_BY_THE_KERNEL: [u64; 4] = [0x9fa0, 0x6265_6572, 0x0027_e0eb, 0x6367_7270];

/// The directory, or the one that it will be made in.
pub fn fault(path: &Path) -> Option<Fault> {
    let what = named_wrongly(path).or_else(|| in_the_way(path))?;
    Some(Fault::new("ledger.path", what, "choose a directory that this user may write to"))
}

fn named_wrongly(path: &Path) -> Option<String> {
    if path.as_os_str().as_bytes().contains(&0) {
        return Some("holds a NUL, which no path may".to_owned());
    }
    let length = path.components().map(|name| name.as_os_str().len()).max()?;
    (length > NAME_BYTES_MAX).then(|| {
        format!("holds a name of {length} bytes; {NAME_BYTES_MAX} are the most that a name may have")
    })
}

fn in_the_way(path: &Path) -> Option<String> {
    let path = std::path::absolute(path).ok()?;
    // A link that leads nowhere is in the way, too.
    let nearest = path.ancestors().find(|place| place.symlink_metadata().is_ok())?;
    let place = nearest.display();
    if !nearest.is_dir() {
        return Some(format!("{place} is not a directory"));
    }
    if let Err(error) = access(nearest, Access::WRITE_OK | Access::EXEC_OK) {
        return Some(format!("{place}: {error}"));
    }
    let kind = u64::try_from(statfs(nearest).ok()?.f_type).ok()?;
    SHOWN_BY_THE_KERNEL.contains(&kind).then(|| format!("{place} is the kernel's: nothing can be kept there"))
}

//! Calls to the operating system that the standard library has no words for.
#![allow(unsafe_code, reason = "kill(2), waitid(2) and ioctl(2) with plain integers; no memory is shared")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// FS_IOC_SHUTDOWN, and its flag for "drop what is not written, journal included".
const SHUTDOWN: libc::c_ulong = 0x8004_587d;
const NO_LOG_FLUSH: u32 = 2;

/// Sends a signal to a child of this process. A child whose exit status was collected is an error: its pid may be
/// another process' by now, or the id of another process' thread, which the signal would reach as well.
pub fn signal(child: u32, signal: libc::c_int) -> io::Result<()> {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the kernel writes nothing where it is given no place to write to.
    check(unsafe { libc::waitid(libc::P_PID, child, std::ptr::null_mut(), flags) })?;
    let pid = libc::pid_t::try_from(child).map_err(io::Error::other)?;
    // SAFETY: takes two integers and touches no memory of ours.
    check(unsafe { libc::kill(pid, signal) })
}

/// The file system stops at once, as if the power had gone: nothing that is not on the device gets there.
pub fn shut_down_file_system(mount_point: &Path) -> io::Result<()> {
    let directory = File::open(mount_point)?;
    let flag = NO_LOG_FLUSH;
    // SAFETY: the descriptor is open, and the kernel only reads the one integer that outlives the call.
    check(unsafe { libc::ioctl(directory.as_raw_fd(), SHUTDOWN, &raw const flag) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_child_that_is_gone_is_not_signalled() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        signal(child.id(), libc::SIGKILL).unwrap();
        child.wait().unwrap();
        let error = signal(child.id(), libc::SIGKILL).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECHILD));
    }

    #[test]
    fn a_process_that_is_no_child_is_not_signalled() {
        let error = signal(std::process::id(), libc::SIGCONT).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECHILD));
    }
}

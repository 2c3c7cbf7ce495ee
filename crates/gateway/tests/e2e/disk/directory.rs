//! Whose the data directory is.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use tempfile::tempdir;

use super::id_of;
use crate::gateway::{command, start};

/// Keys are unique in one process's memory: two processes on one ledger would both take the same one.
#[test]
fn one_ledger_is_served_by_one_process_whatever_leads_to_it() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let data = dir.path().join("data");
    symlink(&data, dir.path().join("symlinked")).unwrap();
    for name in ["hard-linked", "pointing"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    fs::hard_link(data.join("ledger.db"), dir.path().join("hard-linked/ledger.db")).unwrap();
    symlink(data.join("ledger.db"), dir.path().join("pointing/ledger.db")).unwrap();
    let refused = |name: &str| {
        let serve = ["serve", "--listen", "127.0.0.1:0", "--data", name];
        let output = command(dir.path()).args(serve).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("in use by another tidegate"), "{name}: {said}");
        said
    };
    assert!(refused("data").contains(&format!("process {}", gateway.pid())));
    for name in ["symlinked", "hard-linked", "pointing"] {
        refused(name);
    }
    fs::remove_file(data.join("lock")).unwrap();
    for name in ["data", "symlinked"] {
        refused(name);
    }
    gateway.configure("alice", 10);
    id_of(&gateway, "still served");
    assert_eq!(gateway.stop().code(), Some(0));
}

/// The file may lie elsewhere: what belongs to it lies beside it there.
#[test]
fn the_database_may_be_a_symlink() {
    let dir = tempdir().unwrap();
    for name in ["data", "elsewhere"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    symlink(dir.path().join("elsewhere/messages"), dir.path().join("data/ledger.db")).unwrap();
    let gateway = start(dir.path());
    gateway.configure("alice", 10);
    let id = id_of(&gateway, "kept elsewhere");
    gateway.delivered(&id);
    gateway.signal("-KILL");
    gateway.wait();
    assert!(dir.path().join("elsewhere/messages-wal").exists());
    let gateway = start(dir.path());
    gateway.delivered(&id);
    assert_eq!(gateway.stop().code(), Some(0));
}

#[test]
fn nobody_else_may_read_what_the_ledger_writes() {
    let dir = tempdir().unwrap();
    let data = dir.path().join("data");
    let gateway = start(dir.path());
    gateway.configure("alice", 10);
    id_of(&gateway, "private");
    assert_eq!(mode(&data), 0o700);
    private(&data, 4);
    gateway.signal("-KILL");
    gateway.wait();
    // As an older version left them.
    for file in fs::read_dir(&data).unwrap() {
        fs::set_permissions(file.unwrap().path(), fs::Permissions::from_mode(0o644)).unwrap();
    }
    let gateway = start(dir.path());
    private(&data, 4);
    assert_eq!(gateway.stop().code(), Some(0));
    private(&data, 2);
    for arguments in
        [["export", "--to", "archive", "--data", "data"], ["import", "--from", "archive", "--data", "moved"]]
    {
        assert!(command(dir.path()).args(arguments).output().unwrap().status.success());
    }
    private(&dir.path().join("moved"), 2);
}

fn private(data: &Path, files_min: usize) {
    let files: Vec<_> = fs::read_dir(data).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(files.len() >= files_min, "{files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

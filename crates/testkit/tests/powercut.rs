//! The power cut takes what was not synced and leaves what was.

use std::fs::{self, File};
use std::io::Write;

use tidegate_testkit::{Disk, can_cut_power};

#[test]
fn synced_bytes_outlive_a_power_cut_and_others_do_not() {
    if !can_cut_power() {
        eprintln!("skipped: no root, no loop devices or no mkfs.ext4 here");
        return;
    }
    let mut disk = Disk::new(16 << 20).unwrap();
    let mut synced = File::create(disk.path().join("synced")).unwrap();
    synced.write_all(b"acknowledged").unwrap();
    synced.sync_all().unwrap();
    File::open(disk.path()).unwrap().sync_all().unwrap();
    let mut unsynced = File::create(disk.path().join("unsynced")).unwrap();
    unsynced.write_all(b"in the page cache").unwrap();

    disk.cut().unwrap();
    assert!(fs::write(disk.path().join("later"), b"no power").is_err());
    drop((synced, unsynced));
    disk.restore().unwrap();
    assert_eq!(fs::read(disk.path().join("synced")).unwrap(), b"acknowledged");
    assert!(fs::read(disk.path().join("unsynced")).unwrap_or_default().is_empty());
}

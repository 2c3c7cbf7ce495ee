use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A server's own directory. A server that all tests of a process share is never dropped, so its directory outlives the
/// process: whoever starts the next server of that kind tidies up.
pub fn directory(kind: &str) -> anyhow::Result<TempDir> {
    let prefix = format!("tidegate-{kind}-");
    remove_left_over(&prefix);
    Ok(tempfile::Builder::new().prefix(&format!("{prefix}{}-", std::process::id())).tempdir()?)
}

/// Where a server of this directory writes its log. `cargo xtask test` names a place for logs, and keeps those of tests
/// that fail; otherwise the log goes with the directory.
pub fn log_path(dir: &Path) -> PathBuf {
    let Some(logs) = std::env::var_os("XTASK_LOGS") else { return dir.join("log") };
    let names =
        dir.strip_prefix(std::env::temp_dir()).unwrap_or(dir).iter().map(|name| name.to_string_lossy());
    Path::new(&logs).join(names.collect::<Vec<_>>().join("-") + ".log")
}

fn remove_left_over(prefix: &str) {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let pid = name.strip_prefix(prefix).and_then(|rest| rest.split('-').next());
        if pid.is_some_and(|pid| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

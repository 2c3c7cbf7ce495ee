use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// A server's own directory. A server that all tests of a process share is never dropped, so its directory outlives the
/// process: whoever starts the next server of that kind tidies up.
pub fn directory(kind: &str) -> anyhow::Result<TempDir> {
    let prefix = format!("tidegate-{kind}-");
    remove_left_over(&prefix);
    Ok(tempfile::Builder::new().prefix(&format!("{prefix}{}-", std::process::id())).tempdir()?)
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

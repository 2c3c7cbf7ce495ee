//! Dependencies that no source file names.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::root;

/// Every dependency of a crate stands in the crate's code, and every dependency of the workspace in a crate's manifest.
pub fn check() -> Result<(), String> {
    let mut unused = Vec::new();
    let mut manifests = String::new();
    for dir in packages()? {
        let manifest = read(&dir.join("Cargo.toml"))?;
        let mut code = String::new();
        for part in ["src", "tests"] {
            collect(&dir.join(part), &mut code)?;
        }
        let named = dependencies(&manifest).filter(|name| !names(&code, name));
        unused.extend(named.map(|name| format!("{}: {name}", dir.display())));
        manifests.push_str(&manifest);
    }
    let workspace = read(&root().join("Cargo.toml"))?;
    let taken: Vec<_> = dependencies(&manifests).collect();
    let left = dependencies(&workspace).filter(|name| !taken.contains(name));
    unused.extend(left.map(|name| format!("the workspace: {name}")));
    if unused.is_empty() { Ok(()) } else { Err(format!("unused dependencies:\n  {}", unused.join("\n  "))) }
}

fn packages() -> Result<Vec<PathBuf>, String> {
    let crates = root().join("crates");
    let entries = fs::read_dir(&crates).map_err(|error| format!("{}: {error}", crates.display()))?;
    let mut dirs: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    dirs.push(root().join("xtask"));
    dirs.sort();
    Ok(dirs)
}

/// The names in a manifest's sections of dependencies, of whatever kind.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    manifest.lines().filter_map(move |line| {
        if line.starts_with('[') {
            inside = line.trim_end().ends_with("dependencies]");
            return None;
        }
        let name = line.split(['=', '.', ' ']).next().filter(|name| !name.is_empty())?;
        (inside && !line.starts_with('#')).then_some(name)
    })
}

/// Whether the crate's name stands in the code as a word.
fn names(code: &str, dependency: &str) -> bool {
    let name = dependency.replace('-', "_");
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    code.match_indices(&name).any(|(at, _)| {
        let before = at.checked_sub(1).map(|at| code.as_bytes()[at]);
        let after = code.as_bytes().get(at + name.len()).copied();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

fn collect(dir: &Path, code: &mut String) -> Result<(), String> {
    // A crate need not have tests.
    let Ok(entries) = fs::read_dir(dir) else { return Ok(()) };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            collect(&path, code)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let lines = read(&path)?;
            let lines = lines.lines().filter(|line| !line.trim_start().starts_with("//"));
            lines.for_each(|line| code.extend([line, "\n"]));
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_counts_as_a_word_of_its_own_only() {
        assert!(names("use tokio_postgres::Client;", "tokio-postgres"));
        assert!(!names("use tokio_postgres::Client;", "tokio"));
        assert!(!names("let my_bytes = 3;", "bytes"));
        assert!(names("bytes::Bytes::new()", "bytes"));
    }

    #[test]
    fn dependencies_of_every_kind_are_found() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\na.workspace = true\n# b\nc = \"1\"\n\
                        [dev-dependencies]\nd = { version = \"1\" }\n[lints]\nworkspace = true\n";
        assert_eq!(dependencies(manifest).collect::<Vec<_>>(), ["a", "c", "d"]);
    }
}

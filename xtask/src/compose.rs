//! compose.yaml against the schema of its specification, by a Python program of its own that no machine has by itself.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::command::{root, run, target};

const CHECKER: &str = "check-jsonschema";
const VERSION: &str = "0.39.0";

pub fn check() -> Result<(), String> {
    let python = checker()?.join("bin/python");
    let mut check = Command::new(python);
    check.args(["-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]);
    run(check.arg("compose.yaml").current_dir(root()))
}

/// The directory of a Python with the checker; installed once per build directory.
fn checker() -> Result<PathBuf, String> {
    let place = target().join("tools").join(format!("{CHECKER}-{VERSION}"));
    // Written last: without it, whatever is there was interrupted.
    let complete = place.join("complete");
    if complete.is_file() {
        return Ok(place);
    }
    let mut make = Command::new("python3");
    run(make.args(["-m", "venv", "--clear"]).arg(&place))
        .map_err(|problem| format!("{problem}; Debian has what is missing in python3-venv"))?;
    let mut install = Command::new(place.join("bin/python"));
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    run(install.arg(format!("{CHECKER}=={VERSION}")))?;
    fs::write(&complete, "").map_err(|error| format!("{}: {error}", complete.display()))?;
    Ok(place)
}

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::{self, Origin, Problem, Problems};

/// The text of the configuration file that was named, or of the usual one, if there is one.
pub fn read(named: Option<&Path>) -> Result<Option<(PathBuf, String)>, Problems> {
    let path = named.unwrap_or(Path::new(config::FILE));
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if named.is_none() && error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let origin = if named.is_some() { Origin::Flag("--config") } else { Origin::Together };
            let what = format!("cannot read the configuration {}: {error}", path.display());
            let problem = Problem::new(&origin, "", what).fix("name a file that is there and may be read");
            return Err(Problems(vec![problem]));
        }
    };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some((path.to_owned(), text))),
        Err(error) => {
            let sound = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + sound.iter().filter(|byte| **byte == b'\n').count();
            let origin = Origin::File { path: Arc::new(path.to_owned()), line, column: None };
            let problem = Problem::new(&origin, "", "is not UTF-8").fix("save the file as UTF-8");
            Err(Problems(vec![problem]))
        }
    }
}

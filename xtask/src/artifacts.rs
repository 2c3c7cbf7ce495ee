//! What a build has made: test programs and the binaries beside them.

use std::path::PathBuf;

use crate::command::{cargo_command, output, target};

/// One program of tests.
#[derive(Debug, Clone)]
pub struct TestProgram {
    pub package: String,
    /// `lib`, `bin` or `test`.
    pub kind: String,
    pub target: String,
    pub program: PathBuf,
    /// Where cargo would run it.
    pub package_dir: PathBuf,
}

impl TestProgram {
    /// `tidegate-postgres` for the tests of its library, `tidegate-postgres/postgres` for others, with their target.
    pub fn name(&self) -> String {
        match self.kind.as_str() {
            "test" => format!("{}/{}", self.package, self.target),
            "bin" => format!("{}/bin", self.package),
            _ => self.package.clone(),
        }
    }

    /// The arguments by which cargo picks this program alone.
    pub fn selection(&self) -> String {
        match self.kind.as_str() {
            "test" => format!("-p {} --test {}", self.package, self.target),
            "bin" => format!("-p {} --bins", self.package),
            _ => format!("-p {} --lib", self.package),
        }
    }
}

/// Builds everything: the programs of tests, the gateway, the trials. One call with every package, so that each
/// dependency is compiled once with the features that all of them need.
pub fn build() -> Result<Vec<TestProgram>, String> {
    let format = "--message-format=json-render-diagnostics";
    let said = output(cargo_command(&["build", "--workspace", "--all-targets", "--locked", format]))?;
    let programs: Vec<_> = said.lines().filter_map(test_program).collect();
    if programs.is_empty() { Err("the build made no test programs".to_owned()) } else { Ok(programs) }
}

/// A binary of the same build.
pub fn binary(name: &str) -> PathBuf {
    target().join("debug").join(name)
}

fn test_program(line: &str) -> Option<TestProgram> {
    let program = text(line, "executable")?;
    let profile = line.split_once("\"profile\":{")?.1.split_once('}')?.0;
    if !profile.contains("\"test\":true") {
        return None;
    }
    let target = &line[line.find("\"target\":{")?..];
    let package_dir = PathBuf::from(text(line, "manifest_path")?).parent()?.to_owned();
    let id = text(line, "package_id")?;
    let (_, package) = id.rsplit_once(['/', '#'])?;
    // `…/crates/gateway#tidegate@0.1.0`, or `…/xtask#0.1.0` where directory and package have one name.
    let package = match package.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => package_dir.file_name()?.to_string_lossy().into_owned(),
    };
    let kind = target.split_once("\"kind\":[\"")?.1.split_once('"')?.0.to_owned();
    let target = text(target, "name")?.to_owned();
    Some(TestProgram { package, kind, target, program: program.into(), package_dir })
}

/// The text of a key. Names and paths of this workspace need no escapes.
fn text<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let start = line.find(&format!("\"{key}\":\""))? + key.len() + 4;
    line[start..].split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_cargo_is_understood() {
        let line = r#"{"reason":"compiler-artifact","package_id":"path+file:///x/crates/gateway#tidegate@0.1.0","manifest_path":"/x/crates/gateway/Cargo.toml","target":{"kind":["test"],"crate_types":["bin"],"name":"e2e","src_path":"/x/main.rs","test":true},"profile":{"opt_level":"0","debuginfo":1,"test":true},"features":[],"executable":"/x/target/debug/deps/e2e-1","fresh":true}"#;
        let program = test_program(line).unwrap();
        assert_eq!(program.name(), "tidegate/e2e");
        assert_eq!(program.selection(), "-p tidegate --test e2e");
        assert_eq!(program.package_dir, PathBuf::from("/x/crates/gateway"));
        assert!(test_program(&line.replace("\"debuginfo\":1,\"test\":true", "\"test\":false")).is_none());
    }
}

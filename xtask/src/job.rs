use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::artifacts::TestProgram;

/// Variables of a job, for its process and for the line that repeats it.
pub type Variables = Vec<(&'static str, String)>;

/// One process of the test command.
#[derive(Debug)]
pub struct Job {
    pub name: String,
    pub command: Command,
    /// Tests that it runs at once; how much of the machine it may take beside others.
    pub threads: usize,
    /// As measured on two quiet cores. The longest begin first.
    pub seconds: u32,
    pub kind: Kind,
    pub variables: Variables,
}

#[derive(Debug)]
pub enum Kind {
    /// A program of tests; how cargo picks it.
    Tests { selection: String },
    /// Passes or fails as a whole; the line that repeats it.
    Whole { line: String },
}

#[derive(Debug)]
pub struct Finished {
    pub name: String,
    pub took: Duration,
    pub passed: bool,
    /// What the exit says, or that it was ended.
    pub status: String,
    pub tests: Vec<Test>,
    pub said: String,
    /// What the process printed, and the logs of the servers that it started.
    pub logs: PathBuf,
    pub kind: Kind,
    pub variables: Variables,
}

#[derive(Debug, Clone)]
pub struct Test {
    pub name: String,
    pub seconds: f64,
    pub passed: bool,
}

impl Job {
    pub fn tests(program: &TestProgram, threads: usize, seconds: u32) -> Self {
        let mut command = Command::new(&program.program);
        command.current_dir(&program.package_dir).arg(format!("--test-threads={threads}"));
        // What a passing test says is looked at, too: whether it left something out. Times of tests are an unstable
        // option of the test harness.
        command.args(["--show-output", "-Z", "unstable-options", "--report-time"]);
        command.env("RUSTC_BOOTSTRAP", "1");
        let kind = Kind::Tests { selection: program.selection() };
        Self { name: program.name(), command, threads, seconds, kind, variables: Vec::new() }
    }

    pub fn whole(name: &str, command: Command, line: &str, threads: usize, seconds: u32) -> Self {
        let kind = Kind::Whole { line: line.to_owned() };
        Self { name: name.to_owned(), command, threads, seconds, kind, variables: Vec::new() }
    }

    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    pub fn with(mut self, variable: &'static str, value: &str) -> Self {
        self.command.env(variable, value);
        self.variables.push((variable, value.to_owned()));
        self
    }

    pub fn skipping(mut self, parts: &[&str]) -> Self {
        self.command.args(parts.iter().flat_map(|part| ["--skip", part]));
        self
    }

    pub fn only(mut self, parts: &[&str]) -> Self {
        self.command.args(parts);
        self
    }
}

impl Finished {
    pub fn failed_tests(&self) -> impl Iterator<Item = &Test> {
        self.tests.iter().filter(|test| !test.passed)
    }

    /// The line that repeats one of its tests alone, or all of it.
    pub fn repeat(&self, test: Option<&str>) -> String {
        let mut words: Vec<_> =
            self.variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if let Some(seed) = self.seed(test) {
            words.push(format!("TIDEGATE_SEED={seed}"));
        }
        words.push(match &self.kind {
            Kind::Tests { selection } => format!("cargo test {selection}"),
            Kind::Whole { line } => line.clone(),
        });
        words.extend(test.map(|test| format!("-- --exact {test}")));
        words.join(" ")
    }

    /// Whatever this process or one of its tests said about what it did not do.
    pub fn left_out(&self) -> Vec<&str> {
        let mut reasons: Vec<_> =
            self.said.lines().filter_map(|line| line.trim().strip_prefix("left out: ")).collect();
        reasons.sort_unstable();
        reasons.dedup();
        reasons
    }

    /// What the harness shows of a failed test, or the end of everything that was said.
    pub fn words_of(&self, test: Option<&str>) -> &str {
        let section = test.and_then(|test| {
            let title = format!("---- {test} stdout ----\n");
            let rest = &self.said[self.said.rfind(&title)? + title.len()..];
            Some(&rest[..rest.find("\n---- ").or_else(|| rest.find("\nfailures:\n")).unwrap_or(rest.len())])
        });
        section.unwrap_or_else(|| {
            let start = self.said.len().saturating_sub(4_000);
            let start = (start..self.said.len()).find(|&at| self.said.is_char_boundary(at)).unwrap_or(0);
            &self.said[start..]
        })
    }

    fn seed(&self, test: Option<&str>) -> Option<&str> {
        let words = self.words_of(Some(test?));
        let rest = &words[words.rfind("TIDEGATE_SEED=")? + "TIDEGATE_SEED=".len()..];
        Some(&rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())])
    }
}

/// The tests in what a program printed: `test NAME ... ok <1.234s>`.
pub fn tests_in(said: &str) -> Vec<Test> {
    let of_line = |line: &str| {
        // What a child prints meanwhile may come before it on the same line.
        let line = &line[line.find("test ")?..];
        let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
        let name = name.trim_end_matches(" - should panic");
        let passed = rest.starts_with("ok <");
        let seconds = rest[rest.find('<')? + 1..].strip_suffix("s>")?.parse().ok()?;
        let known = passed || rest.starts_with("FAILED <");
        known.then(|| Test { name: name.to_owned(), seconds, passed })
    };
    said.lines().filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\nrunning 2 tests\ntest a::b ... ok <0.010s>\ntest c ... FAILED <1.500s>\n\nsuccesses:\n\n\
        ---- a::b stdout ----\nleft out: it needs root\n\nsuccesses:\n    a::b\n\nfailures:\n\n---- c stdout ----\n\
        TIDEGATE_SEED=12 repeats this\nboom\n\nfailures:\n    c\n\ntest result: FAILED. 1 passed; 1 failed\n";

    fn finished() -> Finished {
        Finished {
            name: "x/e2e".into(),
            took: Duration::ZERO,
            passed: false,
            status: String::new(),
            tests: tests_in(SAID),
            said: SAID.into(),
            logs: PathBuf::new(),
            kind: Kind::Tests { selection: "-p x --test e2e".into() },
            variables: vec![("TIDEGATE_TEST_LEDGER", "postgres".into())],
        }
    }

    #[test]
    fn tests_and_their_times_are_found() {
        let tests = tests_in(SAID);
        assert_eq!(tests.iter().map(|test| test.passed).collect::<Vec<_>>(), [true, false]);
        assert!((tests[1].seconds - 1.5).abs() < 1e-9);
    }

    #[test]
    fn a_failure_is_repeated_with_its_seed() {
        let line = "TIDEGATE_TEST_LEDGER=postgres TIDEGATE_SEED=12 cargo test -p x --test e2e -- --exact c";
        assert_eq!(finished().repeat(Some("c")), line);
        assert!(finished().words_of(Some("c")).ends_with("boom\n"));
        assert_eq!(finished().left_out(), ["it needs root"]);
    }
}

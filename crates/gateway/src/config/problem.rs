use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a value comes from, in the words that a reader needs to find it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Default,
    File {
        path: Arc<PathBuf>,
        line: usize,
        /// Where a line is not even TOML.
        column: Option<usize>,
    },
    Environment(String),
    Flag(&'static str),
    /// Not one value: how values fit together.
    Together,
}

/// One thing that is wrong with the configuration: where, which key, what, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub origin: Origin,
    pub key: String,
    pub what: String,
    pub fix: Option<String>,
}

/// Everything that is wrong, so that one run of `check-config` is enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Problem {
    pub fn new(origin: &Origin, key: &str, what: impl Into<String>) -> Self {
        Self { origin: origin.clone(), key: key.to_owned(), what: what.into(), fix: None }
    }

    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

impl Origin {
    /// Problems are told from the top of the file to its end, and those of other origins after them.
    pub fn line(&self) -> usize {
        if let Self::File { line, .. } = self { *line } else { usize::MAX }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line, column: None } => write!(f, "{}:{line}", path.display()),
            Self::File { path, line, column: Some(column) } => {
                write!(f, "{}:{line}:{column}", path.display())
            }
            Self::Environment(variable) => write!(f, "environment {variable}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::Together => f.write_str("settings"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.what)?;
        match &self.fix {
            Some(fix) => write!(f, "; {fix}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = if self.0.len() == 1 { "problem" } else { "problems" };
        write!(f, "{} {noun} in the configuration:", self.0.len())?;
        self.0.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl std::error::Error for Problems {}

/// The known name closest to `given`, when it is close enough to be a slip of the finger. A key without its
/// section (`listen` for `server.listen`) counts as close.
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let distance = |name: &str| {
        let whole = strsim::damerau_levenshtein(given, name);
        let key = strsim::damerau_levenshtein(&last(given), &last(name)) + 1;
        whole.min(key)
    };
    let (steps, name) = known.into_iter().map(|name| (distance(name), name)).min()?;
    (steps <= 1 + last(given).chars().count() / 3).then_some(name)
}

pub fn did_you_mean<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(given, known) {
        Some(name) => format!("did you mean {name:?}?"),
        None => "remove it; `tidegate config --print-default` lists the known keys".to_owned(),
    }
}

/// What there is to choose from, and what was probably meant.
pub fn choose(given: &str, choices: &[&str]) -> String {
    let quoted: Vec<_> = choices.iter().map(|name| format!("{name:?}")).collect();
    let meant = nearest(given, choices.iter().copied()).map(|name| format!("; did you mean {name:?}?"));
    format!("choose {}{}", quoted.join(" or "), meant.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_key_and_a_stranger_does_not() {
        let known = ["server.listen", "ledger.path", "sender.lease_ms"];
        assert_eq!(nearest("server.lisen", known), Some("server.listen"));
        assert_eq!(nearest("listen", known), Some("server.listen"));
        assert_eq!(nearest("leger.pth", known), Some("ledger.path"));
        assert_eq!(nearest("colour", known), None);
    }
}

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::de::{DeTable, DeValue};
use toml::{Spanned, Value};

use super::problem::{Origin, Problem, did_you_mean};

pub const ENVIRONMENT_PREFIX: &str = "TIDEGATE_";
const PRINCIPALS: &str = "principals";
const POLICIES: &str = "policies";
const QUEUES: &str = "queues";
const LISTS: [&str; 3] = [PRINCIPALS, POLICIES, QUEUES];

/// What the configuration is made from, besides the compiled-in defaults. The caller reads the file and the
/// environment; nothing here does.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    pub file: Option<(PathBuf, String)>,
    pub environment: Vec<(String, String)>,
    /// Flag, key, value.
    pub flags: Vec<(&'static str, &'static str, String)>,
}

/// A value and the layer that set it last.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub value: Value,
    pub origin: Origin,
}

/// One table of a list such as `[[principals]]`, still unchecked.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    pub origin: Origin,
    pub entries: BTreeMap<String, Entry>,
}

/// All layers laid over each other: `section.key` to its value. The default file says which keys there are.
#[derive(Debug, Default)]
pub struct Layers {
    pub entries: BTreeMap<String, Entry>,
    pub principals: Vec<Table>,
    pub policies: Vec<Table>,
    pub queues: Vec<Table>,
    pub problems: Vec<Problem>,
    /// What was left aside, and is no reason not to start.
    pub warnings: Vec<Problem>,
}

/// A document and a way to name its lines.
struct File<'a> {
    path: Arc<PathBuf>,
    text: &'a str,
}

impl Layers {
    pub fn collect(default_text: &str, sources: &Sources) -> Self {
        let mut layers = Self::default();
        layers.lay_file(Path::new("default.toml"), default_text, true);
        for entry in layers.entries.values_mut() {
            entry.origin = Origin::Default;
        }
        if let Some((path, text)) = &sources.file {
            layers.lay_file(path, text, false);
        }
        for (variable, text) in &sources.environment {
            layers.lay_variable(variable, text);
        }
        for (flag, key, text) in &sources.flags {
            layers.lay_text(Origin::Flag(flag), key, text);
        }
        layers
    }

    fn lay_file(&mut self, path: &Path, text: &str, defines: bool) {
        let file = File { path: Arc::new(path.to_owned()), text };
        let (document, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let origin = file.place(error.span().map_or(0, |span| span.start));
            let problem = Problem::new(&origin, "", format!("not valid TOML: {}", error.message()));
            let twice = error.message().contains("duplicate key");
            self.problems.push(if twice { problem.fix("remove one of them") } else { problem });
        }
        for (section, value) in document.get_ref() {
            let origin = file.origin(section.span().start);
            match (section.get_ref().as_ref(), value.get_ref()) {
                (PRINCIPALS, DeValue::Array(tables)) => {
                    let tables = self.lay_tables(&file, PRINCIPALS, tables);
                    self.principals.extend(tables);
                }
                (POLICIES, DeValue::Array(tables)) => {
                    let tables = self.lay_tables(&file, POLICIES, tables);
                    self.policies.extend(tables);
                }
                (QUEUES, DeValue::Array(tables)) => {
                    let tables = self.lay_tables(&file, QUEUES, tables);
                    self.queues.extend(tables);
                }
                (list @ (PRINCIPALS | POLICIES | QUEUES), _) => {
                    let fix = format!("write [[{list}]]");
                    self.problems.push(Problem::new(&origin, list, "must be a list of tables").fix(fix));
                }
                (name, DeValue::Table(table)) if defines || self.has_section(name) => {
                    self.lay_section(&file, name, table, defines);
                }
                (name, DeValue::Table(_)) => self.unknown_section(&origin, name),
                (name, _) if self.has_section(name) => {
                    let problem = Problem::new(&origin, name, "is a section, not a key");
                    self.problems.push(problem.fix(format!("write [{name}], and its keys below")));
                }
                (name, _) => self.unknown(&origin, name),
            }
        }
    }

    fn lay_section(&mut self, file: &File<'_>, section: &str, table: &DeTable<'_>, defines: bool) {
        for (name, value) in table {
            let key = format!("{section}.{}", name.get_ref());
            let origin = file.origin(name.span().start);
            let known = self.entries.get(&key).map(|entry| entry.value.clone());
            if known.is_none() && !defines {
                self.unknown(&origin, &key);
                continue;
            }
            let Some(value) = self.value(&origin, &key, value) else { continue };
            match known.filter(|known| !known.same_type(&value)) {
                None => drop(self.entries.insert(key, Entry { value, origin })),
                Some(known) => {
                    let what = format!("must be {}, not {}", kind_of(&known), kind_of(&value));
                    self.problems.push(Problem::new(&origin, &key, what).fix(format!("such as {known}")));
                }
            }
        }
    }

    fn lay_tables(&mut self, file: &File<'_>, list: &str, tables: &[Spanned<DeValue<'_>>]) -> Vec<Table> {
        let mut laid = Vec::new();
        for table in tables {
            let origin = file.origin(table.span().start);
            let Some(table) = table.get_ref().as_table() else {
                let problem = Problem::new(&origin, list, "must be a list of tables");
                self.problems.push(problem.fix(format!("write [[{list}]], and its keys below")));
                continue;
            };
            let mut entries = BTreeMap::new();
            for (name, value) in table {
                let origin = file.origin(name.span().start);
                if let Some(value) = self.value(&origin, &format!("{list}.{}", name.get_ref()), value) {
                    entries.insert(name.get_ref().to_string(), Entry { value, origin });
                }
            }
            laid.push(Table { origin, entries });
        }
        laid
    }

    /// `TIDEGATE_LEDGER__SYNC` is `ledger.sync`.
    fn lay_variable(&mut self, variable: &str, text: &str) {
        let Some(name) = variable.strip_prefix(ENVIRONMENT_PREFIX) else { return };
        let key = name.to_ascii_lowercase().replacen("__", ".", 1);
        let origin = Origin::Environment(variable.to_owned());
        if self.entries.contains_key(&key) {
            return self.lay_text(origin, &key, text);
        }
        if let Some(list) = LISTS.into_iter().find(|list| key.split('.').next() == Some(list)) {
            let problem = Problem::new(&origin, list, format!("{list} can only be set in a file"));
            return self.problems.push(problem.fix("move them to tidegate.toml"));
        }
        let known: Vec<_> = self.entries.keys().map(|key| variable_of(key)).collect();
        if !name.contains("__") {
            return self.warnings.push(ignored(&origin, variable, &known));
        }
        let fix = did_you_mean(variable, known.iter().map(String::as_str));
        self.problems.push(Problem::new(&origin, "", "no such setting").fix(fix));
    }

    /// A layer of plain text takes its type from the value that it replaces: every layer keeps the default's.
    fn lay_text(&mut self, origin: Origin, key: &str, text: &str) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let value = match &entry.value {
            Value::Integer(_) => text.trim().replace('_', "").parse().ok().map(Value::Integer),
            Value::Array(_) => {
                let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                Some(Value::Array(items.map(|item| Value::String(item.to_owned())).collect()))
            }
            _ => Some(Value::String(text.to_owned())),
        };
        match value {
            Some(value) => *entry = Entry { value, origin },
            None => {
                let what = format!("must be a whole number, not {text:?}");
                let fix = format!("such as {}", entry.value);
                self.problems.push(Problem::new(&origin, key, what).fix(fix));
            }
        }
    }

    fn value(&mut self, origin: &Origin, key: &str, value: &Spanned<DeValue<'_>>) -> Option<Value> {
        match owned(value.get_ref()) {
            Ok(value) => Some(value),
            Err(what) => {
                let fix = self.entries.get(key).map(|known| format!("such as {}", known.value));
                let fix = fix.unwrap_or_else(|| "see `tidegate config --print-default`".to_owned());
                self.problems.push(Problem::new(origin, key, what).fix(fix));
                None
            }
        }
    }

    fn has_section(&self, section: &str) -> bool {
        self.entries.keys().any(|key| key.split('.').next() == Some(section))
    }

    fn unknown_section(&mut self, origin: &Origin, section: &str) {
        let known = self.entries.keys().filter_map(|key| key.split('.').next());
        let fix = did_you_mean(section, known.chain(LISTS));
        self.problems.push(Problem::new(origin, section, "no such section").fix(fix));
    }

    fn unknown(&mut self, origin: &Origin, key: &str) {
        let fix = did_you_mean(key, self.entries.keys().map(String::as_str));
        self.problems.push(Problem::new(origin, key, "no such key").fix(fix));
    }
}

impl Table {
    pub fn name(&self) -> Option<&str> {
        self.entries.get("name").and_then(|entry| entry.value.as_str())
    }

    /// The line of a key, or of the table when it has no such key.
    pub fn origin_of(&self, key: &str) -> &Origin {
        self.entries.get(key).map_or(&self.origin, |entry| &entry.origin)
    }
}

/// Every table that has the name of an earlier one, whatever else is wrong with either.
pub fn check_names(list: &str, tables: &[Table], problems: &mut Vec<Problem>) {
    let mut first = BTreeMap::new();
    for table in tables {
        let Some(name) = table.name() else { continue };
        let origin = table.origin_of("name");
        if let Some(first) = first.insert(name, origin) {
            let what = format!("{name:?} is there twice, also in {first}");
            problems.push(Problem::new(origin, &format!("{list}.name"), what).fix("rename or remove one"));
        }
    }
}

impl File<'_> {
    fn origin(&self, offset: usize) -> Origin {
        Origin::File { path: self.path.clone(), line: self.line_and_column(offset).0, column: None }
    }

    fn place(&self, offset: usize) -> Origin {
        let (line, column) = self.line_and_column(offset);
        Origin::File { path: self.path.clone(), line, column: Some(column) }
    }

    /// Both from 1; the column in characters.
    fn line_and_column(&self, offset: usize) -> (usize, usize) {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line = before.rsplit('\n').next().unwrap_or_default();
        (1 + before.matches('\n').count(), 1 + line.chars().count())
    }
}

fn variable_of(key: &str) -> String {
    format!("{ENVIRONMENT_PREFIX}{}", key.replacen('.', "__", 1).to_ascii_uppercase())
}

/// Kubernetes gives every container TIDEGATE_SERVICE_HOST, TIDEGATE_PORT and more of the kind beside a Service of that
/// name. Every setting has two underscores in a row, so what has none is not meant as one, or is a slip.
fn ignored(origin: &Origin, variable: &str, known: &[String]) -> Problem {
    let slip = known.iter().find(|known| known.replacen("__", "_", 1) == variable);
    let fix = match slip {
        Some(meant) => format!("did you mean {meant:?}?"),
        None => format!("a setting is {ENVIRONMENT_PREFIX}SECTION__KEY"),
    };
    Problem::new(origin, "", "is no setting, and is ignored").fix(fix)
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "text in quotes",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a fraction",
        Value::Array(_) => "a list",
        _ => "true or false",
    }
}

/// Settings are text, numbers and lists of them; nothing else has a meaning here.
fn owned(value: &DeValue<'_>) -> Result<Value, String> {
    match value {
        DeValue::String(text) => Ok(Value::String(text.to_string())),
        DeValue::Boolean(truth) => Ok(Value::Boolean(*truth)),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(Value::Integer)
            .map_err(|_| format!("{} is too large", number.as_str())),
        DeValue::Float(number) => number
            .as_str()
            .parse()
            .map(Value::Float)
            .map_err(|_| format!("{} is not a number", number.as_str())),
        DeValue::Array(items) => {
            items.iter().map(|item| owned(item.get_ref())).collect::<Result<_, _>>().map(Value::Array)
        }
        other => Err(format!("must be text or a number, not a {}", other.type_str())),
    }
}

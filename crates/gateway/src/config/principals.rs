use std::collections::HashMap;

use tidegate_edge::{PrincipalSpec, Principals, Role, check_password_hash};
use toml::Value;

use super::layers::{Entry, Table, check_names};
use super::problem::{Origin, Problem, did_you_mean};

const KEYS: [&str; 4] = ["name", "role", "password_hash", "api_key_hashes"];

/// Checks every `[[principals]]` table; what is wrong goes to `problems`.
pub fn read(tables: &[Table], problems: &mut Vec<Problem>) -> Vec<PrincipalSpec> {
    let before = problems.len();
    check_names("principals", tables, problems);
    check_keys_are_unique(tables, problems);
    let specs: Vec<_> = tables.iter().filter_map(|table| Reading { table, problems }.spec()).collect();
    // What takes them in the end has the last word, before anything is opened.
    if problems.len() == before
        && let Err(what) = Principals::new(specs.clone())
    {
        problems.push(Problem::new(&Origin::Together, "principals", what));
    }
    specs
}

/// With a key of two principals it would be unclear who calls.
fn check_keys_are_unique(tables: &[Table], problems: &mut Vec<Problem>) {
    let mut seen = HashMap::new();
    for table in tables {
        let Some(entry) = table.entries.get("api_key_hashes") else { continue };
        for hash in entry.value.as_array().into_iter().flatten().filter_map(Value::as_str) {
            if let Some(first) = seen.insert(hash, &entry.origin) {
                let what = format!("holds a hash that is there twice, also in {first}");
                let problem = Problem::new(&entry.origin, "principals.api_key_hashes", what);
                problems.push(problem.fix("make another key with `tidegate new-api-key`"));
            }
        }
    }
}

struct Reading<'a> {
    table: &'a Table,
    problems: &'a mut Vec<Problem>,
}

impl Reading<'_> {
    fn spec(&mut self) -> Option<PrincipalSpec> {
        for (key, entry) in &self.table.entries {
            if !KEYS.contains(&key.as_str()) {
                let problem = Problem::new(&entry.origin, &format!("principals.{key}"), "no such key");
                self.problems.push(problem.fix(did_you_mean(key, KEYS)));
            }
        }
        let name = self.name();
        let role = self.role();
        let password_hash = self.password_hash();
        let api_key_hashes = self.api_key_hashes();
        let given = |key| self.table.entries.contains_key(key);
        if !given("password_hash") && !given("api_key_hashes") {
            let fix =
                "add password_hash (`tidegate hash-password`) or api_key_hashes (`tidegate new-api-key`)";
            self.problem("", None, "has neither a password nor an API key", fix);
        }
        Some(PrincipalSpec { name: name?, role: role?, password_hash, api_key_hashes })
    }

    fn name(&mut self) -> Option<String> {
        let fits = |name: &str| {
            (1..=128).contains(&name.len()) && !name.contains(':') && !name.chars().any(char::is_control)
        };
        let fix = "give 1 to 128 bytes without ':' (HTTP Basic could not carry it)";
        match self.entry("name").map(|entry| (entry, entry.value.as_str())) {
            Some((_, Some(name))) if fits(name) => Some(name.to_owned()),
            found => {
                self.problem("name", found.map(|(entry, _)| entry), "must be a name", fix);
                None
            }
        }
    }

    fn role(&mut self) -> Option<Role> {
        match self.entry("role").map(|entry| (entry, entry.value.as_str())) {
            Some((_, Some("USER"))) => Some(Role::User),
            Some((_, Some("ADMIN"))) => Some(Role::Admin),
            found => {
                let entry = found.map(|(entry, _)| entry);
                self.problem("role", entry, "must be a role", "choose \"USER\" or \"ADMIN\"");
                None
            }
        }
    }

    fn password_hash(&mut self) -> Option<String> {
        let entry = self.entry("password_hash")?;
        let text = entry.value.as_str().ok_or_else(|| "must be text in quotes".to_owned());
        match text.and_then(|hash| check_password_hash(hash).map(|()| hash.to_owned())) {
            Ok(hash) => Some(hash),
            Err(what) => {
                let fix = "paste the line that `tidegate hash-password` prints";
                self.problem("password_hash", Some(entry), &what, fix);
                None
            }
        }
    }

    fn api_key_hashes(&mut self) -> Vec<String> {
        let Some(entry) = self.entry("api_key_hashes") else { return Vec::new() };
        let hashes: Option<Vec<_>> = match &entry.value {
            Value::Array(items) if !items.is_empty() => items
                .iter()
                .map(|item| item.as_str().filter(|hash| is_sha256(hash)).map(str::to_owned))
                .collect(),
            _ => None,
        };
        hashes.unwrap_or_else(|| {
            let what = "must be a list of SHA-256 hashes, 64 lowercase hexadecimal digits each";
            let fix = "paste the hash (not the key) that `tidegate new-api-key` prints";
            self.problem("api_key_hashes", Some(entry), what, fix);
            Vec::new()
        })
    }

    fn entry<'a>(&self, key: &str) -> Option<&'a Entry>
    where
        Self: 'a,
    {
        self.table.entries.get(key)
    }

    /// Never shows the value: a key pasted in place of its hash would end up in a log.
    fn problem(&mut self, key: &str, entry: Option<&Entry>, what: &str, fix: &str) {
        let origin = entry.map_or(&self.table.origin, |entry| &entry.origin);
        let what =
            if entry.is_none() && !key.is_empty() { format!("is missing: {what}") } else { what.to_owned() };
        let key = if key.is_empty() { "principals".to_owned() } else { format!("principals.{key}") };
        self.problems.push(Problem::new(origin, &key, what).fix(fix));
    }
}

fn is_sha256(hash: &str) -> bool {
    hash.len() == 64 && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

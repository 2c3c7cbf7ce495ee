mod fail;

use std::collections::HashSet;

use http::{HeaderName, Method};
use tidegate_domain::limits::{
    BadRule, BucketRule, KeyStrategy, MissingKey, PathPattern, Policy, PolicyName,
};
use toml::Value;

use super::layers::{Entry, Table};
use super::problem::{Problem, did_you_mean};

/// Camel case as in the API, and the spelling of the rest of the file.
const KEYS: [(&str, &str); 12] = [
    ("name", "name"),
    ("pathPattern", "path_pattern"),
    ("methods", "methods"),
    ("keyStrategy", "key_strategy"),
    ("header", "header"),
    ("missingKey", "missing_key"),
    ("capacity", "capacity"),
    ("refillTokensPerSecond", "refill_tokens_per_second"),
    ("cost", "cost"),
    ("failStrategy", "fail_strategy"),
    ("fallBackShare", "fall_back_share"),
    ("shadow", "shadow"),
];

/// They would end up, as keys, before the eyes of admins.
const SECRET_HEADERS: [&str; 4] = ["authorization", "proxy-authorization", "cookie", "x-api-key"];
const STRATEGIES: [&str; 4] = ["API_KEY", "IP", "PRINCIPAL", "HEADER"];
const POLICIES_MAX: usize = 1_000;

/// Checks every `[[policies]]` table; what is wrong goes to `problems`.
pub fn read(tables: &[Table], problems: &mut Vec<Problem>) -> Vec<Policy> {
    let mut names = HashSet::new();
    if let Some(table) = tables.get(POLICIES_MAX) {
        let what = format!("more than {POLICIES_MAX}: each costs every request a look");
        problems.push(Problem::new(&table.origin, "policies", what));
    }
    let mut policies = Vec::new();
    for table in tables {
        let Some(policy) = (Reading { table, problems }).policy() else { continue };
        if !names.insert(policy.name.clone()) {
            let what = format!("{:?} is there twice", policy.name);
            problems.push(Problem::new(&table.origin, "policies.name", what).fix("rename or remove one"));
        }
        policies.push(policy);
    }
    policies
}

struct Reading<'a> {
    table: &'a Table,
    problems: &'a mut Vec<Problem>,
}

impl<'a> Reading<'a> {
    fn policy(&mut self) -> Option<Policy> {
        self.check_keys();
        let name = self.text("name").and_then(|text| {
            PolicyName::new(text).map_err(|wrong| self.problem("name", wrong.0, "choose another")).ok()
        });
        let pattern = self.text("pathPattern").and_then(|text| {
            let wrong = |wrong: tidegate_domain::limits::BadPattern| wrong.to_string();
            PathPattern::new(text)
                .map_err(|bad| self.problem("pathPattern", &wrong(bad), "such as \"/api/**\""))
                .ok()
        });
        let methods = self.methods();
        let key = self.key();
        let rule = self.rule();
        let fail = self.fail(rule);
        let (refill_per_second, rule) = rule?;
        Some(Policy {
            name: name?,
            pattern: pattern?,
            methods: methods?,
            key: key?,
            refill_per_second,
            rule,
            fail: fail?,
        })
    }

    fn check_keys(&mut self) {
        for (key, entry) in &self.table.entries {
            if !KEYS.iter().any(|(camel, snake)| [camel, snake].contains(&&key.as_str())) {
                let problem = Problem::new(&entry.origin, &format!("policies.{key}"), "no such key");
                self.problems.push(problem.fix(did_you_mean(key, KEYS.map(|(camel, _)| camel))));
            }
        }
        for (camel, snake) in KEYS.iter().filter(|(camel, snake)| camel != snake) {
            if let (Some(_), Some(_)) = (self.table.entries.get(*camel), self.table.entries.get(*snake)) {
                self.problem(camel, &format!("is there twice, as {camel} and as {snake}"), "remove one");
            }
        }
    }

    fn methods(&mut self) -> Option<Option<Vec<String>>> {
        let Some(entry) = self.entry("methods") else { return Some(None) };
        let method = |item: &Value| {
            let text = item.as_str()?.to_ascii_uppercase();
            Method::from_bytes(text.as_bytes()).is_ok().then_some(text)
        };
        let methods: Option<Vec<_>> =
            entry.value.as_array().and_then(|items| items.iter().map(method).collect());
        match methods.filter(|methods| !methods.is_empty()) {
            Some(methods) => Some(Some(methods)),
            None => {
                self.problem(
                    "methods",
                    "must be a list of methods",
                    "such as [\"POST\", \"PUT\"], or leave it out",
                );
                None
            }
        }
    }

    fn key(&mut self) -> Option<KeyStrategy> {
        let strategy = self.text("keyStrategy");
        let missing = self
            .choice("missingKey", &[("anonymous", MissingKey::Anonymous), ("refuse", MissingKey::Refuse)]);
        let header = self.entry("header").is_some().then(|| self.header());
        let strategy = strategy?;
        if header.is_some() && strategy != "HEADER" {
            self.problem("header", "goes with keyStrategy = \"HEADER\"", "remove it, or change the strategy");
        }
        if self.entry("missingKey").is_some() && !["API_KEY", "HEADER"].contains(&strategy) {
            let fix = "remove it: there is always an address and a principal";
            self.problem("missingKey", "goes with keyStrategy \"API_KEY\" or \"HEADER\"", fix);
        }
        match (strategy, header) {
            ("API_KEY", _) => Some(KeyStrategy::ApiKey { missing: missing? }),
            ("IP", _) => Some(KeyStrategy::Ip),
            ("PRINCIPAL", _) => Some(KeyStrategy::Principal),
            ("HEADER", Some(name)) => Some(KeyStrategy::Header { name: name?, missing: missing? }),
            ("HEADER", None) => {
                self.problem(
                    "header",
                    "is missing: the header that holds the key",
                    "such as header = \"X-Tenant\"",
                );
                None
            }
            (other, _) => {
                let fix = format!("choose {}; {}", quoted(&STRATEGIES), did_you_mean(other, STRATEGIES));
                self.problem("keyStrategy", &format!("{other:?} is not known"), &fix);
                None
            }
        }
    }

    fn header(&mut self) -> Option<String> {
        let text = self.text("header")?;
        let Ok(name) = HeaderName::from_bytes(text.as_bytes()) else {
            self.problem("header", &format!("{text:?} is not the name of a header"), "such as \"X-Tenant\"");
            return None;
        };
        if SECRET_HEADERS.contains(&name.as_str()) {
            let fix = "use keyStrategy \"API_KEY\" or \"PRINCIPAL\"";
            self.problem("header", &format!("{text} holds secrets, and keys are shown to admins"), fix);
        }
        Some(name.as_str().to_owned())
    }

    fn rule(&mut self) -> Option<(f64, BucketRule)> {
        let (capacity, cost) = (self.whole("capacity", None), self.whole("cost", Some(1)));
        let refill = self.refill();
        let shadow = match self.entry("shadow").map(|entry| entry.value.as_bool()) {
            None => Some(false),
            Some(Some(shadow)) => Some(shadow),
            Some(None) => {
                self.problem("shadow", "must be true or false", "without quotes");
                None
            }
        };
        let (capacity, cost, refill, shadow) = (capacity?, cost?, refill?, shadow?);
        match BucketRule::new(capacity, refill, cost, shadow) {
            Ok(rule) => Some((refill, rule)),
            Err(bad) => {
                let refill = "refillTokensPerSecond";
                let (key, fix) = match bad {
                    BadRule::Capacity(_) => ("capacity", format!("choose 1 to {}", BucketRule::CAPACITY_MAX)),
                    BadRule::Cost { .. } => ("cost", format!("choose 1 to {capacity}")),
                    BadRule::Refill(_) => (refill, format!("choose 0 to {}", BucketRule::REFILL_MAX)),
                    BadRule::TooSlow => (refill, "raise it, lower the capacity, or use 0".to_owned()),
                };
                self.problem(key, &bad.to_string(), &fix);
                None
            }
        }
    }

    fn refill(&mut self) -> Option<f64> {
        let key = "refillTokensPerSecond";
        match self.required(key)?.value {
            Value::Float(number) => Some(number),
            Value::Integer(number) => Some(i32::try_from(number).map_or(f64::INFINITY, f64::from)),
            _ => {
                self.problem(key, "must be a number", "such as 10 or 0.5");
                None
            }
        }
    }

    fn whole(&mut self, key: &str, default: Option<u32>) -> Option<u32> {
        if let (Some(default), None) = (default, self.entry(key)) {
            return Some(default);
        }
        let number = self.required(key)?.value.as_integer().and_then(|number| u32::try_from(number).ok());
        if number.is_none() {
            self.problem(key, "must be a whole number", &format!("1 to {}", BucketRule::CAPACITY_MAX));
        }
        number
    }

    /// The default when it is not there.
    fn choice<T: Copy + Default>(&mut self, key: &str, choices: &[(&str, T)]) -> Option<T> {
        let Some(entry) = self.entry(key) else { return Some(T::default()) };
        let found = choices.iter().find(|(name, _)| entry.value.as_str() == Some(name));
        if found.is_none() {
            let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
            self.problem(
                key,
                &format!("{} is not known", entry.value),
                &format!("choose {}", quoted(&names)),
            );
        }
        found.map(|(_, value)| *value)
    }

    fn text(&mut self, key: &str) -> Option<&'a str> {
        let entry = self.required(key)?;
        let text = entry.value.as_str();
        if text.is_none() {
            self.problem(key, "must be text in quotes", "put it in quotes");
        }
        text
    }

    fn required(&mut self, key: &str) -> Option<&'a Entry> {
        let entry = self.entry(key);
        if entry.is_none() {
            self.problem(key, "is missing", &format!("add {key} = …"));
        }
        entry
    }

    fn entry(&self, camel: &str) -> Option<&'a Entry> {
        let snake = KEYS.iter().find(|(known, _)| *known == camel).map_or(camel, |(_, snake)| *snake);
        self.table.entries.get(camel).or_else(|| self.table.entries.get(snake))
    }

    fn problem(&mut self, key: &str, what: &str, fix: &str) {
        let origin = self.entry(key).map_or(&self.table.origin, |entry| &entry.origin);
        self.problems.push(Problem::new(origin, &format!("policies.{key}"), what).fix(fix));
    }
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests;

mod fail;

use http::HeaderName;
use tidegate_domain::limits::{
    BadRule, BucketRule, KeyStrategy, MissingKey, PathPattern, Policy, PolicyName,
};
use toml::Value;

use super::layers::{Entry, Table, check_names};
use super::problem::{Problem, choose, did_you_mean};

/// Camel case as in the API, and the spelling of the rest of the file.
const KEYS: [(&str, &str); 13] = [
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
    ("exemptPriority", "exempt_priority"),
];

/// They would end up, as keys, before the eyes of admins.
const SECRET_HEADERS: [&str; 4] = ["authorization", "proxy-authorization", "cookie", "x-api-key"];
const STRATEGIES: [&str; 4] = ["API_KEY", "IP", "PRINCIPAL", "HEADER"];
/// Others can be sent, and no route answers them.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
const POLICIES_MAX: usize = 1_000;

/// Checks every `[[policies]]` table; what is wrong goes to `problems`.
pub fn read(tables: &[Table], problems: &mut Vec<Problem>) -> Vec<Policy> {
    if let Some(table) = tables.get(POLICIES_MAX) {
        let what = format!("more than {POLICIES_MAX}: each costs every request a look");
        problems.push(Problem::new(&table.origin, "policies", what).fix("remove some"));
    }
    check_names("policies", tables, problems);
    tables.iter().filter_map(|table| Reading { table, problems }.policy()).collect()
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
        let exempts_high = self.choice("exemptPriority", &[("high", true)]);
        let (refill_per_second, rule) = rule?;
        Some(Policy {
            name: name?,
            pattern: pattern?,
            methods: methods?,
            key: key?,
            refill_per_second,
            rule,
            fail: fail?,
            exempts_high: exempts_high?,
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
        let texts: Option<Vec<_>> =
            entry.value.as_array().and_then(|items| items.iter().map(Value::as_str).collect());
        let Some(texts) = texts.filter(|texts| !texts.is_empty()) else {
            let fix = "such as [\"POST\", \"PUT\"], or leave it out";
            self.problem("methods", "must be a list of methods", fix);
            return None;
        };
        let methods: Vec<_> = texts.into_iter().map(str::to_ascii_uppercase).collect();
        for unknown in methods.iter().filter(|method| !METHODS.contains(&method.as_str())) {
            self.problem("methods", &format!("{unknown:?} is not known"), &choose(unknown, &METHODS));
        }
        Some(Some(methods))
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
                self.problem("keyStrategy", &format!("{other:?} is not known"), &choose(other, &STRATEGIES));
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
        // One at a time, beside others that are right: a wrong one hides no other.
        let sound = capacity.and_then(|capacity| self.bucket(capacity, 0.0, 1).map(|_| capacity));
        let most = sound.unwrap_or(BucketRule::CAPACITY_MAX);
        cost.and_then(|cost| self.bucket(most, 0.0, cost));
        refill.and_then(|refill| self.bucket(sound.unwrap_or(1), refill, 1));
        let rule = BucketRule::new(sound?, refill?, cost?, shadow?).ok()?;
        Some((refill?, rule))
    }

    fn bucket(&mut self, capacity: u32, refill: f64, cost: u32) -> Option<BucketRule> {
        let bad = match BucketRule::new(capacity, refill, cost, false) {
            Ok(rule) => return Some(rule),
            Err(bad) => bad,
        };
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
            let given = entry.value.as_str().unwrap_or_default();
            self.problem(key, &format!("{} is not known", entry.value), &choose(given, &names));
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

#[cfg(test)]
mod tests;

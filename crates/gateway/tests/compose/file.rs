use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use saphyr::{LoadableYamlNode as _, ScalarOwned, YamlOwned};
use serde_json::{Map, Value};

/// compose.yaml as an engine sees it: merged, and with variables put in.
pub struct Compose(pub Value);

#[derive(Clone, Copy)]
pub struct Service<'a> {
    pub name: &'a str,
    pub value: &'a Value,
}

/// A line of `volumes`: what is mounted, where, and whether for reading only.
pub struct Mount {
    pub source: String,
    pub target: String,
    pub read_only: bool,
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

pub fn text_of(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

impl Compose {
    pub fn read(variables: &[(&str, &str)]) -> Self {
        let documents = YamlOwned::load_from_str(&text_of("compose.yaml")).unwrap();
        assert_eq!(documents.len(), 1);
        Self(resolved(&documents[0], variables))
    }

    pub fn services(&self) -> Vec<Service<'_>> {
        let services = self.0["services"].as_object().unwrap();
        services.iter().map(|(name, value)| Service { name, value }).collect()
    }

    pub fn service(&self, name: &str) -> Service<'_> {
        *self.services().iter().find(|service| service.name == name).unwrap()
    }

    pub fn volumes(&self) -> Vec<&str> {
        self.0["volumes"].as_object().unwrap().keys().map(String::as_str).collect()
    }
}

impl<'a> Service<'a> {
    pub fn image(&self) -> &'a str {
        self.value["image"].as_str().unwrap()
    }

    /// Built from the Dockerfile here.
    pub fn is_ours(&self) -> bool {
        self.value.get("build").is_some()
    }

    pub fn command(&self) -> Vec<String> {
        words(&self.value["command"])
    }

    pub fn environment(&self) -> BTreeMap<String, String> {
        let Some(variables) = self.value["environment"].as_object() else { return BTreeMap::new() };
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        variables.iter().map(|(name, value)| (name.clone(), text(value))).collect()
    }

    /// What an engine runs inside of the container.
    pub fn health_check(&self) -> Vec<String> {
        let test = words(&self.value["healthcheck"]["test"]);
        match test.split_first().map(|(kind, rest)| (kind.as_str(), rest)) {
            Some(("CMD", rest)) if !rest.is_empty() => rest.to_vec(),
            Some(("CMD-SHELL", [line])) => vec!["/bin/sh".into(), "-c".into(), line.clone()],
            other => panic!("{}: {other:?} is no health check", self.name),
        }
    }

    pub fn mounts(&self) -> Vec<Mount> {
        let mount = |line: String| {
            let mut parts = line.split(':').map(str::to_owned);
            let (source, target) = (parts.next().unwrap(), parts.next().unwrap());
            let options = parts.next().unwrap_or_default();
            Mount { source, target, read_only: options.split(',').any(|option| option == "ro") }
        };
        words(&self.value["volumes"]).into_iter().map(mount).collect()
    }

    /// Whom it waits for to be healthy, and whether it can't do without.
    pub fn waits_for(&self) -> Vec<(&'a str, bool)> {
        let Some(others) = self.value["depends_on"].as_object() else { return Vec::new() };
        let healthy = others.iter().filter(|(_, how)| how["condition"] == "service_healthy");
        healthy.map(|(name, how)| (name.as_str(), how["required"] != false)).collect()
    }

    pub fn profiles(&self) -> Vec<String> {
        words(&self.value["profiles"])
    }

    /// Such as "5s" or "1m".
    pub fn duration(&self, value: &Value) -> Duration {
        let text = value.as_str().unwrap_or_else(|| panic!("{}: {value} is no duration", self.name));
        let (number, unit) = text.split_at(text.len() - 1);
        let seconds = if unit == "m" { 60 } else { 1 };
        assert!(matches!(unit, "s" | "m"), "{text}");
        Duration::from_secs(number.parse::<u64>().unwrap() * seconds)
    }
}

pub fn words(list: &Value) -> Vec<String> {
    let items = list.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| item.as_str().unwrap().to_owned()).collect()
}

fn resolved(node: &YamlOwned, variables: &[(&str, &str)]) -> Value {
    match node {
        YamlOwned::Value(ScalarOwned::String(text)) => Value::String(with_variables(text, variables)),
        YamlOwned::Value(ScalarOwned::Integer(number)) => (*number).into(),
        YamlOwned::Value(ScalarOwned::Boolean(truth)) => (*truth).into(),
        YamlOwned::Value(ScalarOwned::Null) => Value::Null,
        YamlOwned::Sequence(items) => items.iter().map(|item| resolved(item, variables)).collect(),
        YamlOwned::Mapping(entries) => {
            let (mut own, mut merged) = (Map::new(), Map::new());
            for (key, value) in entries {
                match (key.as_str().unwrap(), resolved(value, variables)) {
                    ("<<", Value::Object(others)) => merged.extend(others),
                    (key, value) => drop(own.insert(key.to_owned(), value)),
                }
            }
            // What stands there itself wins.
            merged.extend(own);
            Value::Object(merged)
        }
        other => panic!("{other:?}"),
    }
}

/// `${NAME:-default}`, and `$$` for a dollar sign.
fn with_variables(text: &str, variables: &[(&str, &str)]) -> String {
    let Some((before, rest)) = text.split_once('$') else { return text.to_owned() };
    let (value, after) = if let Some(after) = rest.strip_prefix('$') {
        ("$", after)
    } else {
        let (inner, after) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).unwrap();
        let (name, default) = inner.split_once(":-").unwrap_or_else(|| panic!("{text}: without a default"));
        let given = variables.iter().find(|(known, _)| *known == name);
        (given.map_or(default, |(_, value)| value), after)
    };
    format!("{before}{value}{}", with_variables(after, variables))
}

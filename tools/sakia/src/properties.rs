//! The settings of a process as texts: file, environment, command line. Pure, apart from `read_file`.
//!
//! Later ones win: file, `KAFKA_…` variables, `SAKIA_…` variables, `--override`. A variable names a key as Kafka's
//! images do: prefix away, lower case, `_` is `.`, `__` is `-`, `___` is `_`. So `KAFKA_NODE_ID` is `node.id`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use crate::failure::Failure;

pub(crate) type Properties = BTreeMap<String, String>;

/// Variables of Kafka's start scripts and images, and of our tests, that are no settings.
const NO_SETTINGS: &[&str] = &[
    "KAFKA_CLUSTER_ID",
    "KAFKA_CONFIG_DIR",
    "KAFKA_DEBUG",
    "KAFKA_GC_LOG_OPTS",
    "KAFKA_HEAP_OPTS",
    "KAFKA_HOME",
    "KAFKA_JMX_HOSTNAME",
    "KAFKA_JMX_OPTS",
    "KAFKA_JMX_PORT",
    "KAFKA_JVM_PERFORMANCE_OPTS",
    "KAFKA_LOG4J_OPTS",
    "KAFKA_LOG_DIR",
    "KAFKA_OPTS",
    "KAFKA_VERSION",
];
const NO_SETTINGS_PREFIXES: &[&str] = &["KAFKA_LOG4J_", "KAFKA_TOOLS_LOG4J_", "SAKIA_SIM_", "SAKIA_TEST_"];

/// Reads a file in Java's properties format.
pub(crate) fn read_file(path: &Path) -> Result<Properties, Failure> {
    let refused = |why: &dyn std::fmt::Display| Failure::refused(format!("cannot read {}: {why}", path.display()));
    let file = File::open(path).map_err(|error| refused(&error))?;
    let pairs = java_properties::read(BufReader::new(file)).map_err(|error| refused(&error))?;
    Ok(pairs.into_iter().collect())
}

/// Adds what the environment sets.
pub(crate) fn add_environment(properties: &mut Properties, variables: impl Iterator<Item = (String, String)> + Clone) {
    for prefix in ["KAFKA_", "SAKIA_"] {
        for (name, value) in variables.clone() {
            if let Some(rest) = name.strip_prefix(prefix).filter(|_| is_setting(&name)) {
                properties.insert(key(rest), value);
            }
        }
    }
}

/// Adds `key=value` texts of the command line.
pub(crate) fn add_overrides(properties: &mut Properties, texts: &[String]) -> Result<(), Failure> {
    for text in texts {
        let (name, value) =
            text.split_once('=').ok_or_else(|| Failure::refused(format!("--override {text}: must be key=value")))?;
        properties.insert(name.trim().to_owned(), value.trim().to_owned());
    }
    Ok(())
}

/// Writes lines that `read_file` reads back.
pub(crate) fn to_text(properties: &Properties) -> String {
    let escape = |value: &str| value.replace('\\', "\\\\");
    properties.iter().map(|(key, value)| format!("{key}={}\n", escape(value))).collect()
}

/// Whether a variable of this name is read as a setting at all.
pub(crate) fn is_setting(name: &str) -> bool {
    !NO_SETTINGS.contains(&name) && !NO_SETTINGS_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn key(rest: &str) -> String {
    rest.to_ascii_lowercase().replace("___", "\u{0}").replace("__", "-").replace('_', ".").replace('\u{0}', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Properties {
        let pairs: Vec<(String, String)> =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut properties = Properties::new();
        add_environment(&mut properties, pairs.into_iter());
        properties
    }

    #[test]
    fn variables_are_named_as_in_kafka_images() {
        let read = variables(&[("KAFKA_NODE_ID", "1"), ("KAFKA_A__B___C", "2"), ("OTHER_NODE_ID", "3"), ("PATH", "/")]);
        let read: Vec<(&str, &str)> = read.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(read, [("a-b_c", "2"), ("node.id", "1")]);
    }

    #[test]
    fn variables_of_start_scripts_are_no_settings() {
        assert!(variables(&[("KAFKA_HEAP_OPTS", "-Xmx1g"), ("SAKIA_SIM_SEEDS", "7")]).is_empty());
    }

    #[test]
    fn later_sources_win() {
        let mut properties = Properties::from([("shards".to_owned(), "1".to_owned())]);
        let set = [("SAKIA_SHARDS".to_owned(), "3".to_owned()), ("KAFKA_SHARDS".to_owned(), "2".to_owned())];
        add_environment(&mut properties, set.into_iter());
        assert_eq!(properties["shards"], "3");
        add_overrides(&mut properties, &["shards=4".to_owned()]).expect("valid");
        assert_eq!(properties["shards"], "4");
        assert!(add_overrides(&mut properties, &["shards".to_owned()]).is_err());
    }

    #[test]
    fn what_is_written_is_read_back() {
        let properties = Properties::from([
            ("log.dirs".to_owned(), "/a folder/with \\ and = and : in it".to_owned()),
            ("remote.wal.storage.url".to_owned(), "s3://b/p?endpoint=http://127.0.0.1:9000&region=x".to_owned()),
        ]);
        let read = java_properties::read(to_text(&properties).as_bytes()).expect("valid");
        assert_eq!(read.into_iter().collect::<Properties>(), properties);
    }
}

//! Texts checked against a table: names, types, ranges. Pure.

use std::collections::BTreeMap;

use thiserror::Error;

use super::table::{Effect, Kind, Setting, find};

/// Why a set of settings is refused. Each says what to do.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SettingsError {
    /// A key in no table.
    #[error("unknown setting `{name}`{}", did_you_mean(nearest))]
    Unknown { name: String, nearest: &'static str },
    /// A key that is known and cannot be used.
    #[error("setting `{name}` is refused: {reason}")]
    Refused { name: String, reason: &'static str },
    /// A value of the wrong type or outside its range.
    #[error("setting `{name}` = `{value}`: {expected}")]
    Value { name: String, value: String, expected: String },
    /// A key that must be set.
    #[error("setting `{name}` must be set: {hint}")]
    Missing { name: &'static str, hint: &'static str },
}

/// A key that was accepted and changes nothing.
#[derive(Debug, PartialEq, Eq)]
pub struct Warning {
    /// The key.
    pub name: String,
    /// Why it changes nothing.
    pub reason: &'static str,
}

/// Values that were found valid, with the defaults of their table behind them.
pub struct Values {
    table: &'static [Setting],
    set: BTreeMap<String, String>,
}

impl Values {
    /// Checks every key and value against the table.
    ///
    /// # Errors
    /// The first key that is unknown, refused, or has a bad value.
    pub fn check(
        table: &'static [Setting],
        texts: &BTreeMap<String, String>,
    ) -> Result<(Self, Vec<Warning>), SettingsError> {
        let mut warnings = Vec::new();
        for (name, value) in texts {
            let Some(setting) = find(table, name) else {
                return Err(SettingsError::Unknown { name: name.clone(), nearest: nearest(table, name) });
            };
            check_value(setting, value)?;
            match setting.effect {
                Effect::Effective => {}
                Effect::None(reason) => warnings.push(Warning { name: name.clone(), reason }),
                Effect::Refused(_) if value == setting.default => {}
                Effect::Refused(reason) => return Err(SettingsError::Refused { name: name.clone(), reason }),
            }
        }
        Ok((Self { table, set: texts.clone() }, warnings))
    }

    /// The text of a key: as set, else its default; empty is "not set".
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        let setting = find(self.table, name).expect("the code asks only for declared settings");
        self.set.get(name).map_or(setting.default, |value| value.trim())
    }

    /// Whether the key was set by the person.
    #[must_use]
    pub fn is_set(&self, name: &str) -> bool {
        self.set.get(name).is_some_and(|value| !value.trim().is_empty())
    }

    /// A number (also milliseconds and bytes).
    #[must_use]
    pub fn number(&self, name: &str) -> i64 {
        self.text(name).parse().expect("checked values and defaults of numeric settings are numbers")
    }

    /// A number that is not negative.
    #[must_use]
    pub fn size(&self, name: &str) -> u64 {
        u64::try_from(self.number(name)).expect("the range of a size starts at 0 or above")
    }

    /// A number that fits memory.
    #[must_use]
    pub fn len(&self, name: &str) -> usize {
        usize::try_from(self.number(name)).expect("the range of a length starts at 0 or above")
    }

    /// Milliseconds as a duration; negative ("no limit") is `None`.
    #[must_use]
    pub fn duration(&self, name: &str) -> Option<std::time::Duration> {
        u64::try_from(self.number(name)).ok().map(std::time::Duration::from_millis)
    }

    /// A switch.
    #[must_use]
    pub fn switch(&self, name: &str) -> bool {
        self.text(name).eq_ignore_ascii_case("true")
    }

    /// The parts of a list, trimmed, without empty ones.
    pub fn list(&self, name: &str) -> impl Iterator<Item = &str> {
        self.text(name).split(',').map(str::trim).filter(|part| !part.is_empty())
    }
}

/// Checks one value against its row.
///
/// # Errors
/// `SettingsError::Value` with what was expected.
pub(super) fn check_value(setting: &Setting, value: &str) -> Result<(), SettingsError> {
    let refuse = |expected: String| {
        Err(SettingsError::Value { name: setting.name.to_owned(), value: value.to_owned(), expected })
    };
    let value = value.trim();
    match setting.kind {
        Kind::Text | Kind::List => Ok(()),
        Kind::Boolean if value.eq_ignore_ascii_case("true") || value.eq_ignore_ascii_case("false") => Ok(()),
        Kind::Boolean => refuse("must be true or false".to_owned()),
        Kind::OneOf(words) if words.contains(&value) => Ok(()),
        Kind::OneOf(words) => refuse(format!("must be one of: {}", words.join(", "))),
        Kind::Integer { min, max } | Kind::Milliseconds { min, max } | Kind::Bytes { min, max } => {
            match value.parse::<i64>() {
                Ok(number) if (min..=max).contains(&number) => Ok(()),
                Ok(_) => refuse(format!("must lie in {min}..={max}")),
                Err(_) => refuse("must be a whole number".to_owned()),
            }
        }
    }
}

/// The declared name with the smallest edit distance; empty if none is near enough to have been meant.
pub(super) fn nearest(table: &'static [Setting], name: &str) -> &'static str {
    let distances = table.iter().map(|setting| (edit_distance(setting.name, name), setting.name));
    let near = distances.min().filter(|(distance, _)| *distance <= 2.max(name.chars().count() / 4));
    near.map_or("", |(_, known)| known)
}

fn did_you_mean(nearest: &str) -> String {
    if nearest.is_empty() {
        "; `sakia settings` lists all of them".to_owned()
    } else {
        format!("; did you mean `{nearest}`?")
    }
}

fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().take(200).collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let replace = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::super::table::{BROKER, TOPIC};
    use super::*;

    fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn unknown_key_is_refused_with_the_nearest_name() {
        let error = Values::check(BROKER, &texts(&[("num.partitons", "3")])).err();
        assert_eq!(error, Some(SettingsError::Unknown { name: "num.partitons".into(), nearest: "num.partitions" }));
        let error = Values::check(BROKER, &texts(&[("foo.bar", "3")])).err();
        assert_eq!(error, Some(SettingsError::Unknown { name: "foo.bar".into(), nearest: "" }));
    }

    #[test]
    fn value_outside_its_range_is_refused() {
        assert!(Values::check(BROKER, &texts(&[("num.partitions", "0")])).is_err());
        assert!(Values::check(BROKER, &texts(&[("num.partitions", "three")])).is_err());
        assert!(Values::check(BROKER, &texts(&[("auto.create.topics.enable", "yes")])).is_err());
    }

    #[test]
    fn ignored_key_warns_and_refused_key_says_why() {
        let (_, warnings) = Values::check(BROKER, &texts(&[("num.io.threads", "8")])).expect("accepted");
        assert_eq!(warnings.len(), 1);
        let error = Values::check(BROKER, &texts(&[("broker.id", "1")])).err().map(|e| e.to_string());
        assert_eq!(error.as_deref(), Some("setting `broker.id` is refused: Use `node.id`."));
    }

    #[test]
    fn every_default_is_valid_and_every_topic_default_names_a_broker_key() {
        for setting in BROKER.iter().filter(|s| !s.default.is_empty()) {
            check_value(setting, setting.default).expect(setting.name);
        }
        for setting in TOPIC.iter().filter(|s| !s.default.is_empty()) {
            assert!(find(BROKER, setting.default).is_some(), "{}", setting.name);
        }
    }

    #[test]
    fn names_are_declared_once() {
        for table in [BROKER, TOPIC] {
            let mut names: Vec<_> = table.iter().map(|s| s.name).collect();
            names.sort_unstable();
            let count = names.len();
            names.dedup();
            assert_eq!(count, names.len());
        }
    }
}

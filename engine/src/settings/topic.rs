//! Settings of a topic: what it sets itself over what the broker gives. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use sakia_protocol::batch::TimestampType;

use super::table::{Effect, TOPIC, find};
use super::values::{SettingsError, Values, check_value, nearest};

/// What happens to old records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CleanupPolicy {
    /// They are deleted by age, size, or log start.
    Delete,
}

/// When acks=all is answered on a topic of the object path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WalAck {
    /// When the in-sync replicas have it.
    Replica,
}

/// Settings of one topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicSettings {
    /// `cleanup.policy`.
    pub cleanup: CleanupPolicy,
    /// `retention.ms`; `None` keeps records.
    pub retention: Option<Duration>,
    /// `retention.bytes`; `None` has no limit.
    pub retention_bytes: Option<u64>,
    /// `segment.bytes`.
    pub segment_bytes: u64,
    /// `segment.ms`.
    pub segment_age: Duration,
    /// `index.interval.bytes`.
    pub index_interval_bytes: usize,
    /// `max.message.bytes`.
    pub batch_bytes_max: usize,
    /// `min.insync.replicas`.
    pub min_insync: usize,
    /// `flush.messages`.
    pub flush_records: u64,
    /// `flush.ms`.
    pub flush_age: Duration,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
    /// `remote.wal.storage.enable`.
    pub wal: bool,
    /// `remote.wal.ack`.
    pub wal_ack: WalAck,
}

impl TopicSettings {
    /// What the broker's own settings give a topic.
    pub(super) fn from_broker(values: &Values) -> Self {
        let stamp = match values.text("log.message.timestamp.type") {
            "LogAppendTime" => TimestampType::LogAppendTime,
            _ => TimestampType::CreateTime,
        };
        Self {
            cleanup: CleanupPolicy::Delete,
            retention: values.duration("log.retention.ms"),
            retention_bytes: u64::try_from(values.number("log.retention.bytes")).ok(),
            segment_bytes: values.size("log.segment.bytes"),
            segment_age: values.duration("log.roll.ms").expect("the range starts at 1"),
            index_interval_bytes: values.len("log.index.interval.bytes"),
            batch_bytes_max: values.len("message.max.bytes"),
            min_insync: values.len("min.insync.replicas"),
            flush_records: values.size("log.flush.interval.messages"),
            flush_age: values.duration("log.flush.interval.ms").expect("the range starts at 1"),
            timestamp_type: stamp,
            timestamp_before_max_ms: values.number("log.message.timestamp.before.max.ms"),
            timestamp_after_max_ms: values.number("log.message.timestamp.after.max.ms"),
            wal: values.switch("log.remote.wal.storage.enable"),
            wal_ack: WalAck::Replica,
        }
    }

    /// These settings with a topic's own over them.
    ///
    /// # Errors
    /// The first key that is unknown or has a bad value (the client gets INVALID_CONFIG 40).
    pub fn with(&self, configs: &BTreeMap<String, String>) -> Result<Self, SettingsError> {
        let mut settings = self.clone();
        for (name, value) in configs {
            settings.set(name, value)?;
        }
        Ok(settings)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), SettingsError> {
        let Some(row) = find(TOPIC, name) else {
            return Err(SettingsError::Unknown { name: name.to_owned(), nearest: nearest(TOPIC, name) });
        };
        check_value(row, value)?;
        if let Effect::Refused(reason) = row.effect {
            return Err(SettingsError::Refused { name: name.to_owned(), reason });
        }
        let value = value.trim();
        let number = || value.parse::<i64>().expect("checked values of numeric settings are numbers");
        let size = || u64::try_from(number()).expect("the range of a size starts at 0 or above");
        let len = || usize::try_from(number()).expect("the range of a length starts at 0 or above");
        match name {
            "retention.ms" => self.retention = u64::try_from(number()).ok().map(Duration::from_millis),
            "retention.bytes" => self.retention_bytes = u64::try_from(number()).ok(),
            "segment.bytes" => self.segment_bytes = size(),
            "segment.ms" => self.segment_age = Duration::from_millis(size()),
            "index.interval.bytes" => self.index_interval_bytes = len(),
            "max.message.bytes" => self.batch_bytes_max = len(),
            "min.insync.replicas" => self.min_insync = len(),
            "flush.messages" => self.flush_records = size(),
            "flush.ms" => self.flush_age = Duration::from_millis(size()),
            "message.timestamp.type" => {
                self.timestamp_type =
                    if value == "LogAppendTime" { TimestampType::LogAppendTime } else { TimestampType::CreateTime };
            }
            "message.timestamp.before.max.ms" => self.timestamp_before_max_ms = number(),
            "message.timestamp.after.max.ms" => self.timestamp_after_max_ms = number(),
            "remote.wal.storage.enable" => self.wal = value.eq_ignore_ascii_case("true"),
            _ => {} // cleanup.policy, remote.wal.ack, compression.type: one value each
        }
        Ok(())
    }

    /// The value of a key as text, for DescribeConfigs.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        let limit = |d: Option<Duration>| d.map_or_else(|| "-1".to_owned(), |d| d.as_millis().to_string());
        Some(match name {
            "cleanup.policy" => "delete".to_owned(),
            "retention.ms" => limit(self.retention),
            "retention.bytes" => self.retention_bytes.map_or_else(|| "-1".to_owned(), |b| b.to_string()),
            "segment.bytes" => self.segment_bytes.to_string(),
            "segment.ms" => limit(Some(self.segment_age)),
            "index.interval.bytes" => self.index_interval_bytes.to_string(),
            "max.message.bytes" => self.batch_bytes_max.to_string(),
            "min.insync.replicas" => self.min_insync.to_string(),
            "flush.messages" => self.flush_records.to_string(),
            "flush.ms" => limit(Some(self.flush_age)),
            "message.timestamp.type" => format!("{:?}", self.timestamp_type),
            "message.timestamp.before.max.ms" => self.timestamp_before_max_ms.to_string(),
            "message.timestamp.after.max.ms" => self.timestamp_after_max_ms.to_string(),
            "remote.wal.storage.enable" => self.wal.to_string(),
            "remote.wal.ack" => "replica".to_owned(),
            "compression.type" => "producer".to_owned(),
            "unclean.leader.election.enable" => "false".to_owned(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::broker::Settings;
    use super::*;

    fn defaults() -> TopicSettings {
        let texts = [
            ("node.id", "1"),
            ("log.dirs", "/data"),
            ("controller.quorum.voters", "3@127.0.0.1:9093"),
            ("listeners", "PLAINTEXT://127.0.0.1:9092"),
        ];
        let texts = texts.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Settings::from_properties(&texts).expect("valid").0.topic_defaults
    }

    #[test]
    fn every_topic_key_has_a_text_and_can_be_set_to_it() {
        let defaults = defaults();
        for row in TOPIC {
            let text = defaults.text(row.name).expect(row.name);
            let configs = BTreeMap::from([(row.name.to_owned(), text)]);
            assert_eq!(defaults.with(&configs).expect(row.name), defaults, "{}", row.name);
        }
    }

    #[test]
    fn compaction_is_refused_until_it_exists() {
        let configs = BTreeMap::from([("cleanup.policy".to_owned(), "compact".to_owned())]);
        assert!(defaults().with(&configs).is_err());
    }
}

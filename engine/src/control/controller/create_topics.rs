//! CreateTopics: names, numbers, replicas and settings of new topics.
//!
//! `plan` decides with Kafka's rules what is asked for; whether it may be is decided where the command is applied. A
//! topic is answered as created when that is done.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sakia_controller::apply::check_topic_name;
use sakia_controller::command::CreateTopic;
use sakia_controller::image::Configs;
use sakia_controller::limits::TOPIC_PARTITIONS_MAX;
use sakia_controller::placement::{Wanted, place};
use sakia_controller::{CommandError, Image};
use sakia_io::{now, random_u64};
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::{BrokerId, Uuid};
use sakia_protocol::messages::create_topics::{
    CreatableTopic, CreatableTopicConfigs, CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse,
};
use tracing::info;

use super::{ControllerApi, random_uuid, refusal, repeated, unproposed};
use crate::control::limits::TOPICS_PER_REQUEST_MAX;
use crate::messages::Refusal;
use crate::settings::{Setting, Settings, TOPIC, TopicSettings};

/// Shortest time that a request of several topics is given.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// Kafka's numbers for where a value comes from.
const SOURCE_TOPIC: i8 = 1;
const SOURCE_STATIC_BROKER: i8 = 4;
const SOURCE_DEFAULT: i8 = 5;

/// A topic as it will be.
#[derive(Debug)]
struct Plan {
    command: CreateTopic,
    settings: TopicSettings,
}

impl ControllerApi {
    pub(super) async fn create_topics(&self, body: CreateTopicsRequest) -> CreateTopicsResponse {
        let CreateTopicsRequest { topics, timeout_ms, validate_only } = body;
        let active = self.activation().await.map_err(|error| unproposed(&error));
        let deadline = now() + Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0)).max(TIMEOUT_MIN);
        let twice = repeated(topics.iter().map(|topic| topic.name.as_str()));
        let too_many = topics.len() > TOPICS_PER_REQUEST_MAX;
        let mut answered = BTreeSet::new();
        let mut results = Vec::with_capacity(topics.len());
        for topic in topics {
            let created = match &active {
                Err(refusal) => Err(refusal.clone()),
                Ok(()) if too_many => Err(invalid_request("too many topics in one request")),
                Ok(()) if twice.contains(&topic.name) => Err(invalid_request("the topic is named twice")),
                Ok(()) if now() >= deadline => Err(Refusal::code(ErrorCode::RequestTimedOut)),
                Ok(()) if validate_only => self.validate_topic(&topic),
                Ok(()) => self.create_topic(&topic).await,
            };
            if answered.insert(topic.name.clone()) {
                let id = created.as_ref().map_or(Uuid::ZERO, |plan| plan.command.topic_id);
                let topic_id = if validate_only { Uuid::ZERO } else { id };
                results.push(CreatableTopicResult { topic_id, ..result(&self.settings, topic.name, created) });
            }
        }
        CreateTopicsResponse { throttle_time_ms: 0, topics: results }
    }

    fn validate_topic(&self, topic: &CreatableTopic) -> Result<Plan, Refusal> {
        let plan = plan(&self.controller.image(), &self.settings, topic, random_uuid(), random_u64())?;
        self.check(&plan.command.clone().into()).map_err(|error| refusal(&error))?;
        Ok(plan)
    }

    async fn create_topic(&self, topic: &CreatableTopic) -> Result<Plan, Refusal> {
        let plan = plan(&self.controller.image(), &self.settings, topic, random_uuid(), random_u64())?;
        self.propose(plan.command.clone()).await?;
        let CreateTopic { topic_id, name, assignments, .. } = &plan.command;
        info!(topic = name, id = %topic_id, partitions = assignments.len(), "topic created");
        Ok(plan)
    }
}

fn invalid_request(why: &str) -> Refusal {
    Refusal::with_message(ErrorCode::InvalidRequest, why)
}

/// What is asked for, with defaults and replicas filled in. Pure.
fn plan(
    image: &Image,
    defaults: &Settings,
    topic: &CreatableTopic,
    topic_id: Uuid,
    seed: u64,
) -> Result<Plan, Refusal> {
    check_topic_name(&topic.name).map_err(|error| refusal(&error))?;
    if image.topic_named(&topic.name).is_some() {
        return Err(refusal(&CommandError::TopicExists { name: topic.name.clone() }));
    }
    let configs = configs(topic)?;
    let bad_config = |why: String| Refusal::with_message(ErrorCode::InvalidConfig, why);
    let settings = defaults.topic_defaults.with(&configs).map_err(|error| bad_config(error.to_string()))?;
    let assignments = if topic.assignments.is_empty() {
        let wanted = wanted(defaults, topic)?;
        place(image, wanted, seed).map_err(|error| unplaced(wanted, &error))?
    } else {
        assigned(topic)?
    };
    Ok(Plan { command: CreateTopic { topic_id, name: topic.name.clone(), configs, assignments }, settings })
}

fn configs(topic: &CreatableTopic) -> Result<Configs, Refusal> {
    let mut configs = BTreeMap::new();
    for config in &topic.configs {
        let Some(value) = &config.value else {
            let message = format!("null value not supported for topic configs: {}", config.name);
            return Err(Refusal::with_message(ErrorCode::InvalidConfig, message));
        };
        configs.insert(config.name.clone(), value.clone());
    }
    Ok(configs)
}

/// Numbers of a topic whose replicas the controller chooses; -1 means the default.
fn wanted(defaults: &Settings, topic: &CreatableTopic) -> Result<Wanted, Refusal> {
    let count = match topic.num_partitions {
        -1 => Some(defaults.partitions_default),
        number => usize::try_from(number).ok().filter(|count| *count > 0),
    };
    let replication = match topic.replication_factor {
        -1 => Some(defaults.replication_default),
        number => usize::try_from(number).ok().filter(|count| *count > 0),
    };
    let refuse = |code, message: &str| Refusal::with_message(code, message);
    let count = count.ok_or_else(|| {
        refuse(ErrorCode::InvalidPartitions, "number of partitions was set to an invalid non-positive value")
    })?;
    if count > TOPIC_PARTITIONS_MAX {
        return Err(refusal(&CommandError::TooMany { what: "partitions of a topic", max: TOPIC_PARTITIONS_MAX }));
    }
    let replication = replication.ok_or_else(|| {
        refuse(ErrorCode::InvalidReplicationFactor, "replication factor was set to an invalid non-positive value")
    })?;
    Ok(Wanted { first: 0, count, replication })
}

pub(super) fn unplaced(wanted: Wanted, error: &CommandError) -> Refusal {
    let CommandError::InvalidReplicationFactor { live } = error else { return refusal(error) };
    let replication = wanted.replication;
    let message = format!("unable to replicate the partition {replication} time(s): only {live} broker(s) serve");
    Refusal::with_message(ErrorCode::InvalidReplicationFactor, message)
}

/// Replicas that the client chose: partitions 0, 1, … without a gap.
fn assigned(topic: &CreatableTopic) -> Result<Vec<Vec<BrokerId>>, Refusal> {
    if topic.num_partitions != -1 || topic.replication_factor != -1 {
        return Err(invalid_request(
            "with a manual assignment, number of partitions and replication factor must be -1",
        ));
    }
    let mut rows: Vec<(i32, Vec<BrokerId>)> = Vec::new();
    for row in &topic.assignments {
        rows.push((row.partition_index, brokers(&row.broker_ids)?));
    }
    rows.sort();
    if rows.iter().zip(0i32..).any(|((index, _), expected)| *index != expected) {
        let message = "partitions should be a consecutive 0-based integer sequence";
        return Err(Refusal::with_message(ErrorCode::InvalidReplicaAssignment, message));
    }
    Ok(rows.into_iter().map(|(_, brokers)| brokers).collect())
}

/// Broker ids of a manual assignment.
pub(super) fn brokers(ids: &[i32]) -> Result<Vec<BrokerId>, Refusal> {
    let read = |id: &i32| {
        let refused = || Refusal::with_message(ErrorCode::InvalidReplicaAssignment, format!("{id} is not a broker id"));
        BrokerId::from_wire(*id).ok_or_else(refused)
    };
    ids.iter().map(read).collect()
}

fn result(defaults: &Settings, name: String, created: Result<Plan, Refusal>) -> CreatableTopicResult {
    match created {
        Ok(Plan { command, settings }) => {
            let replication = command.assignments.first().map_or(0, Vec::len);
            CreatableTopicResult {
                name,
                num_partitions: i32::try_from(command.assignments.len()).expect("bounded by TOPIC_PARTITIONS_MAX"),
                replication_factor: i16::try_from(replication).expect("bounded by REPLICAS_MAX"),
                configs: Some(listing(defaults, &settings, &command.configs)),
                ..CreatableTopicResult::default()
            }
        }
        Err(Refusal { code, message, .. }) => CreatableTopicResult {
            name,
            error_code: code.code(),
            error_message: message,
            configs: Some(Vec::new()),
            ..CreatableTopicResult::default()
        },
    }
}

/// Every setting that the topic will have, with where its value comes from.
fn listing(defaults: &Settings, settings: &TopicSettings, own: &Configs) -> Vec<CreatableTopicConfigs> {
    let row = |setting: &Setting| {
        let config_source = match () {
            () if own.contains_key(setting.name) => SOURCE_TOPIC,
            () if defaults.texts.contains_key(setting.default) => SOURCE_STATIC_BROKER,
            () => SOURCE_DEFAULT,
        };
        let (name, value) = (setting.name.to_owned(), Some(settings.text(setting.name)?));
        Some(CreatableTopicConfigs { name, value, read_only: false, config_source, is_sensitive: false })
    };
    TOPIC.iter().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use sakia_protocol::messages::create_topics::{CreatableReplicaAssignment, CreatableTopicConfig};

    use super::*;

    fn settings() -> Settings {
        let texts = [
            ("process.roles", "controller"),
            ("node.id", "3"),
            ("log.dirs", "/data"),
            ("controller.quorum.voters", "3@c:9093"),
            ("listeners", "CONTROLLER://c:9093"),
            ("num.partitions", "4"),
            ("log.retention.ms", "1000"),
        ];
        let texts = texts.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Settings::from_properties(&texts).expect("valid").0
    }

    fn topic(name: &str) -> CreatableTopic {
        CreatableTopic {
            name: name.to_owned(),
            num_partitions: -1,
            replication_factor: -1,
            ..CreatableTopic::default()
        }
    }

    fn code(topic: &CreatableTopic) -> ErrorCode {
        let planned = plan(&Image::default(), &settings(), topic, Uuid::from_bytes([1; 16]), 7);
        planned.map_or_else(|refusal| refusal.code, |_| ErrorCode::None)
    }

    #[test]
    fn numbers_that_cannot_be_are_refused_before_anything_is_allocated() {
        assert_eq!(code(&CreatableTopic { num_partitions: 0, ..topic("t") }), ErrorCode::InvalidPartitions);
        assert_eq!(code(&CreatableTopic { num_partitions: -2, ..topic("t") }), ErrorCode::InvalidPartitions);
        assert_eq!(code(&CreatableTopic { num_partitions: i32::MAX, ..topic("t") }), ErrorCode::PolicyViolation);
        assert_eq!(code(&CreatableTopic { replication_factor: 0, ..topic("t") }), ErrorCode::InvalidReplicationFactor);
        assert_eq!(code(&topic("t")), ErrorCode::InvalidReplicationFactor, "no broker is registered");
    }

    #[test]
    fn names_and_settings_are_checked() {
        assert_eq!(code(&topic("")), ErrorCode::InvalidTopicException);
        assert_eq!(code(&topic("a b")), ErrorCode::InvalidTopicException);
        let with = |name: &str, value: Option<&str>| CreatableTopic {
            configs: vec![CreatableTopicConfig { name: name.to_owned(), value: value.map(str::to_owned) }],
            ..topic("t")
        };
        assert_eq!(code(&with("cleanup.policy", Some("compact"))), ErrorCode::InvalidConfig);
        assert_eq!(code(&with("retention.mss", Some("1"))), ErrorCode::InvalidConfig);
        assert_eq!(code(&with("retention.ms", None)), ErrorCode::InvalidConfig);
    }

    #[test]
    fn a_manual_assignment_stands_alone_and_has_no_gaps() {
        let rows = |numbers: &[i32]| {
            let row = |number: &i32| CreatableReplicaAssignment { partition_index: *number, broker_ids: vec![2, 1] };
            numbers.iter().map(row).collect::<Vec<_>>()
        };
        let manual = CreatableTopic { assignments: rows(&[1, 0]), ..topic("t") };
        assert_eq!(code(&manual), ErrorCode::None);
        assert_eq!(code(&CreatableTopic { num_partitions: 2, ..manual.clone() }), ErrorCode::InvalidRequest);
        for numbers in [&[0, 2][..], &[1], &[0, 0]] {
            let gap = CreatableTopic { assignments: rows(numbers), ..topic("t") };
            assert_eq!(code(&gap), ErrorCode::InvalidReplicaAssignment, "{numbers:?}");
        }
    }

    #[test]
    fn the_listing_says_where_a_value_comes_from() {
        let configs = BTreeMap::from([("segment.bytes".to_owned(), "2097152".to_owned())]);
        let settings = settings();
        let rows = listing(&settings, &settings.topic_defaults.with(&configs).unwrap(), &configs);
        let source = |name: &str| rows.iter().find(|row| row.name == name).map(|row| row.config_source);
        assert_eq!(source("segment.bytes"), Some(SOURCE_TOPIC));
        assert_eq!(source("retention.ms"), Some(SOURCE_STATIC_BROKER));
        assert_eq!(source("flush.ms"), Some(SOURCE_DEFAULT));
    }
}

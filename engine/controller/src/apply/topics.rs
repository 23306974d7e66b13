//! Creation and deletion of topics, and more partitions for them.
//!
//! The proposer chose the replicas; here it is checked that the name is free and valid, and that the replicas exist.
//! Pure.

use std::sync::Arc;

use sakia_protocol::ids::BrokerId;

use crate::command::{CreatePartitions, CreateTopic, DeleteTopic};
use crate::election::{Brokers, first_record};
use crate::error::CommandError;
use crate::event::{Event, PartitionsAdded, TopicCreated, TopicDeleted};
use crate::image::{Configs, Image, PartitionImage, TopicImage};
use crate::limits::{
    CLUSTER_PARTITIONS_MAX, CONFIG_ENTRIES_MAX, REPLICAS_MAX, TEXT_BYTES_MAX, TOPIC_NAME_LEN_MAX, TOPIC_PARTITIONS_MAX,
};

pub(super) fn create(image: &Image, command: &CreateTopic) -> Result<Vec<Event>, CommandError> {
    check_topic_name(&command.name)?;
    if image.topic_named(&command.name).is_some() {
        return Err(CommandError::TopicExists { name: command.name.clone() });
    }
    if command.topic_id.is_zero() || image.topic(&command.topic_id).is_some() {
        return Err(CommandError::InvalidRequest { reason: "topic id is in use" });
    }
    if collides(image, &command.name) {
        return Err(CommandError::InvalidTopic { reason: "differs from an existing name by '.' and '_' only" });
    }
    check_configs(&command.configs)?;
    if command.assignments.is_empty() {
        return Err(CommandError::InvalidPartitions);
    }
    let replication = command.assignments.first().map_or(0, Vec::len);
    let partitions = place(image, &command.assignments, replication, 0)?;
    let (id, name, configs) = (command.topic_id, command.name.clone(), command.configs.clone());
    let topic = Arc::new(TopicImage { id, name, configs, partitions });
    Ok(vec![Event::TopicCreated(TopicCreated { topic })])
}

pub(super) fn delete(image: &Image, command: &DeleteTopic) -> Result<Vec<Event>, CommandError> {
    let DeleteTopic { topic_id } = *command;
    let topic = image.topic(&topic_id).ok_or(CommandError::UnknownTopicId { topic_id })?;
    Ok(vec![Event::TopicDeleted(TopicDeleted { topic_id, name: topic.name.clone() })])
}

pub(super) fn add_partitions(image: &Image, command: &CreatePartitions) -> Result<Vec<Event>, CommandError> {
    let CreatePartitions { topic_id, first, ref assignments } = *command;
    let topic = image.topic(&topic_id).ok_or(CommandError::UnknownTopicId { topic_id })?;
    let present = topic.partitions.len();
    if first.index() != present || assignments.is_empty() {
        return Err(CommandError::InvalidPartitions);
    }
    let replication = topic.partitions.first().map_or(0, |partition| partition.replicas.len());
    let partitions = place(image, assignments, replication, present)?;
    Ok(vec![Event::PartitionsAdded(PartitionsAdded { topic_id, first, partitions })])
}

/// Kafka's rules for the name of a topic.
///
/// # Errors
/// `InvalidTopic` with the rule that is broken.
pub fn check_topic_name(name: &str) -> Result<(), CommandError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let reason = match name {
        "" => "it is empty",
        "." | ".." => "it is '.' or '..'",
        _ if name.len() > TOPIC_NAME_LEN_MAX => "it is longer than 249 characters",
        _ if !name.chars().all(allowed) => "it has other characters than letters, digits, '.', '_' and '-'",
        _ => return Ok(()),
    };
    Err(CommandError::InvalidTopic { reason })
}

/// Metric names of two such topics would be equal.
fn collides(image: &Image, name: &str) -> bool {
    let plain = |text: &str| text.replace('.', "_");
    if !name.contains(['.', '_']) {
        return false;
    }
    let wanted = plain(name);
    image.topics().any(|topic| plain(&topic.name) == wanted)
}

pub(super) fn check_configs(configs: &Configs) -> Result<(), CommandError> {
    if configs.len() > CONFIG_ENTRIES_MAX {
        return Err(CommandError::TooMany { what: "configuration entries", max: CONFIG_ENTRIES_MAX });
    }
    if configs.iter().any(|(name, value)| name.len().max(value.len()) > TEXT_BYTES_MAX) {
        return Err(CommandError::TooMany { what: "bytes of text", max: TEXT_BYTES_MAX });
    }
    Ok(())
}

fn place(
    image: &Image,
    assignments: &[Vec<BrokerId>],
    replication: usize,
    present: usize,
) -> Result<Vec<PartitionImage>, CommandError> {
    let added = assignments.len();
    if present.saturating_add(added) > TOPIC_PARTITIONS_MAX {
        return Err(CommandError::TooMany { what: "partitions of a topic", max: TOPIC_PARTITIONS_MAX });
    }
    let total: usize = image.topics().map(|topic| topic.partitions.len()).sum();
    if total.saturating_add(added) > CLUSTER_PARTITIONS_MAX {
        return Err(CommandError::TooMany { what: "partitions", max: CLUSTER_PARTITIONS_MAX });
    }
    if replication > REPLICAS_MAX {
        return Err(CommandError::TooMany { what: "replicas", max: REPLICAS_MAX });
    }
    let brokers = Brokers::now(image);
    assignments.iter().map(|replicas| place_one(image, &brokers, replicas, replication)).collect()
}

fn place_one(
    image: &Image,
    brokers: &Brokers<'_>,
    replicas: &[BrokerId],
    replication: usize,
) -> Result<PartitionImage, CommandError> {
    let invalid = |reason| Err(CommandError::InvalidAssignment { reason });
    if replicas.is_empty() {
        return invalid("a partition has no replicas");
    }
    if replicas.len() != replication {
        return invalid("partitions differ in their number of replicas");
    }
    let repeats = |(place, broker)| replicas.iter().take(place).any(|earlier| earlier == broker);
    if replicas.iter().enumerate().any(repeats) {
        return invalid("a broker is named twice");
    }
    if !replicas.iter().all(|broker| image.brokers.contains_key(broker)) {
        return invalid("a broker is not registered");
    }
    let record = first_record(replicas, brokers);
    record.map_or_else(|| invalid("all brokers are fenced or stopping"), Ok)
}

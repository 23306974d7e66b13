//! CreatePartitions: more partitions for topics that exist. A topic never gets fewer.

use std::collections::BTreeSet;

use sakia_controller::command::CreatePartitions;
use sakia_controller::limits::TOPIC_PARTITIONS_MAX;
use sakia_controller::placement::{Wanted, place};
use sakia_controller::{CommandError, Image};
use sakia_io::random_u64;
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::{BrokerId, PartitionIndex};
use sakia_protocol::messages::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic, CreatePartitionsTopicResult,
};
use tracing::info;

use super::create_topics::{brokers, unplaced};
use super::{ControllerApi, refusal, repeated, unproposed};
use crate::control::limits::TOPICS_PER_REQUEST_MAX;
use crate::control::topics::has_fixed_partitions;
use crate::messages::Refusal;

impl ControllerApi {
    pub(super) async fn create_partitions(&self, body: CreatePartitionsRequest) -> CreatePartitionsResponse {
        let CreatePartitionsRequest { topics, validate_only, .. } = body;
        let active = self.activation().await.map_err(|error| unproposed(&error));
        let twice = repeated(topics.iter().map(|topic| topic.name.as_str()));
        let too_many = topics.len() > TOPICS_PER_REQUEST_MAX;
        let invalid_request = |why: &str| Err(refuse(ErrorCode::InvalidRequest, why));
        let mut answered = BTreeSet::new();
        let mut results = Vec::with_capacity(topics.len());
        for topic in topics {
            let added = match &active {
                Err(refusal) => Err(refusal.clone()),
                Ok(()) if too_many => invalid_request("too many topics in one request"),
                Ok(()) if twice.contains(&topic.name) => invalid_request("the topic is named twice"),
                Ok(()) => match plan(&self.controller.image(), &topic, random_u64()) {
                    Err(refusal) => Err(refusal),
                    Ok(command) if validate_only => self.check(&command.into()).map_err(|error| refusal(&error)),
                    Ok(command) => self.add_partitions(&topic, command).await,
                },
            };
            if answered.insert(topic.name.clone()) {
                results.push(result(topic.name, added));
            }
        }
        CreatePartitionsResponse { throttle_time_ms: 0, results }
    }

    async fn add_partitions(&self, topic: &CreatePartitionsTopic, command: CreatePartitions) -> Result<(), Refusal> {
        self.propose(command).await?;
        info!(topic = topic.name, partitions = topic.count, "partitions added");
        Ok(())
    }
}

fn refuse(code: ErrorCode, why: impl Into<String>) -> Refusal {
    Refusal::with_message(code, why)
}

/// What is asked for, with replicas filled in. Pure.
fn plan(image: &Image, topic: &CreatePartitionsTopic, seed: u64) -> Result<CreatePartitions, Refusal> {
    let name = &topic.name;
    let found = image.topic_named(name);
    let found = found.ok_or_else(|| refuse(ErrorCode::UnknownTopicOrPartition, format!("no topic is named {name}")))?;
    if has_fixed_partitions(name) {
        return Err(refuse(ErrorCode::InvalidRequest, "the topic keeps its number of partitions"));
    }
    let present = found.partitions.len();
    let wanted = usize::try_from(topic.count).unwrap_or(0);
    if wanted <= present {
        let message = format!("the topic has {present} partition(s); {} would not be an increase", topic.count);
        return Err(refuse(ErrorCode::InvalidPartitions, message));
    }
    if wanted > TOPIC_PARTITIONS_MAX {
        return Err(refusal(&CommandError::TooMany { what: "partitions of a topic", max: TOPIC_PARTITIONS_MAX }));
    }
    let count = wanted - present;
    let assignments: Vec<Vec<BrokerId>> = match &topic.assignments {
        Some(rows) if rows.len() != count => {
            let message = format!("{count} partition(s) are added, but {} assignment(s) were given", rows.len());
            return Err(refuse(ErrorCode::InvalidReplicaAssignment, message));
        }
        Some(rows) => rows.iter().map(|row| brokers(&row.broker_ids)).collect::<Result<_, _>>()?,
        None => {
            let replication = found.partitions.first().map_or(1, |partition| partition.replicas.len());
            let wanted = Wanted { first: present, count, replication };
            place(image, wanted, seed).map_err(|error| unplaced(wanted, &error))?
        }
    };
    let first = PartitionIndex::new(i32::try_from(present).expect("bounded by TOPIC_PARTITIONS_MAX"));
    Ok(CreatePartitions { topic_id: found.id, first, assignments })
}

fn result(name: String, added: Result<(), Refusal>) -> CreatePartitionsTopicResult {
    let (error_code, error_message) = match added {
        Ok(()) => (ErrorCode::None, None),
        Err(Refusal { code, message, .. }) => (code, message),
    };
    CreatePartitionsTopicResult { name, error_code: error_code.code(), error_message }
}

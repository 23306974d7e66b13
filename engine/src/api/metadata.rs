//! Metadata: brokers, topics, partitions and who leads them, from the shard's own image.

use std::collections::BTreeMap;
use std::rc::Rc;

use sakia_controller::Image;
use sakia_controller::image::{PartitionImage, Standing, TopicImage};
use sakia_io::oneshot;
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::{BrokerId, Uuid};
use sakia_protocol::messages::metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic,
};

use super::{decode, respond};
use crate::connection::{Request, Response};
use crate::messages::ControlMessage;
use crate::shard::{OFFSETS_TOPIC, Shard, WAL_METADATA_TOPIC};

/// "Not asked for" in the fields of authorized operations.
const OPERATIONS_UNKNOWN: i32 = i32::MIN;

/// Topics that are the broker's own. Clients see them marked and may not write to them.
pub(crate) const INTERNAL_TOPICS: &[&str] = &[OFFSETS_TOPIC, WAL_METADATA_TOPIC];

pub(super) async fn answer(shard: Rc<Shard>, request: Request) -> Response {
    let body: MetadataRequest = match decode(&request) {
        Ok(body) => body,
        Err(close) => return close,
    };
    let wanted = wanted(body.topics, request.api_version);
    let created = match &wanted {
        Wanted::Listed(topics) if body.allow_auto_topic_creation => create_missing(&shard, topics).await,
        _ => BTreeMap::new(),
    };
    let response = shard.with_image(|image| {
        let topics = match &wanted {
            Wanted::All => image.topics_by_name().map(|topic| describe(image, topic)).collect(),
            Wanted::Listed(topics) => topics.iter().map(|topic| look_up(image, topic, &created)).collect(),
        };
        MetadataResponse {
            brokers: brokers(image),
            cluster_id: Some(image.cluster_id.clone()),
            controller_id: controller(&shard, image),
            topics,
            cluster_authorized_operations: OPERATIONS_UNKNOWN,
            ..MetadataResponse::default()
        }
    });
    respond(&request, &response)
}

enum Wanted {
    All,
    Listed(Vec<MetadataRequestTopic>),
}

/// Version 0 has no null: its empty list means all topics. Later an empty list means none.
fn wanted(topics: Option<Vec<MetadataRequestTopic>>, version: i16) -> Wanted {
    match topics {
        None => Wanted::All,
        Some(topics) if topics.is_empty() && version == 0 => Wanted::All,
        Some(topics) => Wanted::Listed(topics),
    }
}

/// Asks the controller for topics that are named and do not exist; gives the error of each that could not be made.
async fn create_missing(shard: &Rc<Shard>, topics: &[MetadataRequestTopic]) -> BTreeMap<String, ErrorCode> {
    if !shard.settings.auto_create {
        return BTreeMap::new();
    }
    let missing: Vec<String> = shard.with_image(|image| {
        let names = topics.iter().filter_map(|topic| topic.name.as_deref());
        names.filter(|name| image.topic_named(name).is_none()).map(str::to_owned).collect()
    });
    if missing.is_empty() {
        return BTreeMap::new();
    }
    let (reply, answer) = oneshot();
    let message = ControlMessage::AutoCreate { names: missing, reply };
    if shard.addresses.control.send(message).await.is_err() {
        return BTreeMap::new();
    }
    answer.await.unwrap_or_default().into_iter().filter(|(_, error)| *error != ErrorCode::None).collect()
}

fn look_up(
    image: &Image,
    wanted: &MetadataRequestTopic,
    created: &BTreeMap<String, ErrorCode>,
) -> MetadataResponseTopic {
    if let Some(name) = &wanted.name {
        if let Some(topic) = image.topic_named(name) {
            return describe(image, topic);
        }
        let error = created.get(name).copied().unwrap_or(ErrorCode::UnknownTopicOrPartition);
        return missing(Some(name.clone()), Uuid::ZERO, error);
    }
    match image.topic(&wanted.topic_id) {
        Some(topic) => describe(image, topic),
        None => missing(None, wanted.topic_id, ErrorCode::UnknownTopicId),
    }
}

fn missing(name: Option<String>, topic_id: Uuid, error: ErrorCode) -> MetadataResponseTopic {
    MetadataResponseTopic {
        error_code: error.code(),
        name,
        topic_id,
        topic_authorized_operations: OPERATIONS_UNKNOWN,
        ..MetadataResponseTopic::default()
    }
}

fn describe(image: &Image, topic: &TopicImage) -> MetadataResponseTopic {
    let rows = topic.partitions.iter().zip(0..).map(|(partition, index)| describe_partition(image, partition, index));
    MetadataResponseTopic {
        error_code: ErrorCode::None.code(),
        name: Some(topic.name.clone()),
        topic_id: topic.id,
        is_internal: INTERNAL_TOPICS.contains(&topic.name.as_str()),
        partitions: rows.collect(),
        topic_authorized_operations: OPERATIONS_UNKNOWN,
    }
}

fn describe_partition(image: &Image, partition: &PartitionImage, index: i32) -> MetadataResponsePartition {
    let alive = |id: &BrokerId| image.brokers.get(id).is_some_and(|b| b.standing != Standing::Fenced);
    let leader = partition.leader.filter(alive);
    MetadataResponsePartition {
        error_code: if leader.is_some() { ErrorCode::None } else { ErrorCode::LeaderNotAvailable }.code(),
        partition_index: index,
        leader_id: BrokerId::to_wire(leader),
        leader_epoch: partition.leader_epoch.get(),
        replica_nodes: partition.replicas.iter().map(|id| id.get()).collect(),
        isr_nodes: partition.isr.iter().map(|member| member.broker.get()).collect(),
        offline_replicas: partition.replicas.iter().filter(|id| !alive(id)).map(|id| id.get()).collect(),
    }
}

/// Brokers that clients may connect to: fenced ones are left out, as in Kafka.
fn brokers(image: &Image) -> Vec<MetadataResponseBroker> {
    let live = image.brokers.iter().filter(|(_, broker)| broker.standing != Standing::Fenced);
    live.filter_map(|(id, broker)| {
        let listener = broker.listeners.first()?;
        Some(MetadataResponseBroker {
            node_id: id.get(),
            host: listener.host.clone(),
            port: i32::from(listener.port),
            rack: broker.rack.clone(),
        })
    })
    .collect()
}

/// Clients send admin requests to "the controller": a live broker, which forwards them, as in KRaft.
pub(super) fn controller(shard: &Shard, image: &Image) -> i32 {
    let me = shard.settings.node_id;
    let live = |id: &BrokerId| image.brokers.get(id).is_some_and(|b| b.standing == Standing::Active);
    let chosen = if live(&me) { Some(me) } else { image.brokers.keys().copied().find(|id| live(id)) };
    BrokerId::to_wire(chosen)
}

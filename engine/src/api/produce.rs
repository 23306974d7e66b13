//! Produce: batches in.
//!
//! Path: frame → `ProduceView` (borrowed) → each batch checked once (`RawBatch::check`: CRC, record walk) → one order per
//! owner shard → appended there, in request order → the answer.
//!
//! Invariant: batches of one connection reach their shards in the order of its requests: orders are handed over before
//! the next request is read. A refused batch writes nothing; the others of the request go on.
//! Cost: no copy of record bytes; one message per destination shard.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sakia_controller::image::TopicImage;
use sakia_io::{Answer, oneshot, wall_clock_ms};
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::batch::{CheckLimits, CheckedBatch, NullKeys, RawBatch, TimestampRule, TimestampType};
use sakia_protocol::ids::{BrokerId, LeaderEpoch, PartitionIndex, PartitionKey};
use sakia_protocol::messages::produce::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, ProduceResponse,
    TopicProduceResponse,
};
use sakia_protocol::produce_view::{PRODUCE_VERSIONS, ProduceView};
use sakia_protocol::topic_ref::TopicRef;

use super::metadata::INTERNAL_TOPICS;
use super::{ready, respond};
use crate::connection::{LocalFuture, Request, Response};
use crate::limits::DECOMPRESSED_BYTES_MAX;
use crate::messages::{Acks, ProduceBatch, ProduceOrder, ProduceResult, Produced, Refusal, ShardId, ShardMessage};
use crate::settings::TopicSettings;
use crate::shard::Shard;

/// One row of the answer.
struct Row {
    topic: usize,
    index: i32,
    outcome: Option<Result<Produced, Refusal>>,
}

/// The request as far as the answer needs it.
struct Answering {
    topics: Vec<OwnedTopic>,
    rows: Vec<Row>,
    orders: Vec<Answer<Vec<ProduceResult>>>,
    acks: Acks,
}

enum OwnedTopic {
    Name(String),
    Id(sakia_protocol::ids::TopicId),
}

/// Hands the batches to their shards; gives the future of the answer.
pub(super) async fn start(shard: Rc<Shard>, request: Request) -> LocalFuture<Response> {
    if !PRODUCE_VERSIONS.contains(&request.api_version) {
        let reason = format!("Produce version {} is listed for old clients' sake and not served", request.api_version);
        return ready(Response::Close(reason));
    }
    let mut view = ProduceView::new();
    if let Err(error) = view.decode(&request.frame, request.body_start, request.api_version) {
        let reason = format!("bad Produce request version {}: {error}", request.api_version);
        return ready(Response::Close(reason));
    }
    let answering = hand_over(&shard, &view, &request).await;
    Box::pin(async move { answer(shard, request, answering).await })
}

async fn hand_over(shard: &Rc<Shard>, view: &ProduceView, request: &Request) -> Answering {
    let acks = view.acks();
    let timeout = Duration::from_millis(u64::try_from(view.timeout_ms()).unwrap_or(0));
    let mut answering =
        Answering { topics: Vec::new(), rows: Vec::new(), orders: Vec::new(), acks: acks.unwrap_or(Acks::Leader) };
    let mut by_shard: BTreeMap<ShardId, Vec<ProduceBatch>> = BTreeMap::new();
    for topic in view.topics() {
        let gate = Gate::find(shard, topic.topic(), view);
        let number = answering.topics.len();
        answering.topics.push(match topic.topic() {
            TopicRef::Name(name) => OwnedTopic::Name(name.to_owned()),
            TopicRef::Id(id) => OwnedTopic::Id(id),
        });
        for partition in topic.partitions() {
            let row = answering.rows.len();
            let checked = gate.check(shard, partition.index(), &partition.records(), request.api_version);
            let outcome = match checked {
                Ok((key, batch)) => {
                    by_shard.entry(shard.placement.owner(&key)).or_default().push(ProduceBatch { row, key, batch });
                    None
                }
                Err(refusal) => Some(Err(refusal)),
            };
            answering.rows.push(Row { topic: number, index: partition.index(), outcome });
        }
    }
    for (owner, batches) in by_shard {
        let (reply, order) = oneshot();
        let acks = answering.acks;
        let order_message = ShardMessage::Produce(ProduceOrder { batches, acks, timeout, reply });
        if shard.deliver(owner, order_message).await {
            answering.orders.push(order);
        }
    }
    answering
}

/// What a topic of the request allows: either why nothing of it is taken, or how its batches are checked.
struct Gate {
    topic: Result<(Arc<TopicImage>, Rc<TopicSettings>), Refusal>,
}

impl Gate {
    fn find(shard: &Shard, wanted: TopicRef<'_>, view: &ProduceView) -> Self {
        if view.acks().is_none() {
            return Self { topic: Err(Refusal::code(ErrorCode::InvalidRequiredAcks)) };
        }
        if view.transactional_id().is_some() {
            return Self { topic: Err(no_transactions()) };
        }
        let (found, unknown) = shard.with_image(|image| match wanted {
            TopicRef::Name(name) => (image.topic_named(name).cloned(), ErrorCode::UnknownTopicOrPartition),
            TopicRef::Id(id) => (image.topic(&id).cloned(), ErrorCode::UnknownTopicId),
        });
        let Some(topic) = found else { return Self { topic: Err(Refusal::code(unknown)) } };
        if INTERNAL_TOPICS.contains(&topic.name.as_str()) {
            let message = "this topic is written by brokers only";
            return Self { topic: Err(Refusal::with_message(ErrorCode::InvalidTopicException, message)) };
        }
        let settings = shard.topic_settings(&topic);
        Self { topic: Ok((topic, settings)) }
    }

    fn check(
        &self,
        shard: &Shard,
        index: i32,
        records: &Bytes,
        version: i16,
    ) -> Result<(PartitionKey, CheckedBatch), Refusal> {
        let (topic, settings) = self.topic.as_ref().map_err(Clone::clone)?;
        let partition = PartitionIndex::from_wire(index).filter(|p| p.index() < topic.partitions.len());
        let partition = partition.ok_or_else(|| Refusal::code(ErrorCode::UnknownTopicOrPartition))?;
        let key = PartitionKey { topic_id: topic.id, partition };
        if topic.partitions[partition.index()].leader != Some(shard.settings.node_id) {
            return Err(Refusal { leader: shard.leader_of(&key), ..Refusal::code(ErrorCode::NotLeaderOrFollower) });
        }
        let batch = RawBatch::new(records).check(&limits(settings, version)).map_err(|error| Refusal {
            code: error.code,
            message: Some(error.message.into_owned()),
            records: error.records.into_iter().map(|fault| (fault.batch_index, Some(fault.message))).collect(),
            leader: None,
        })?;
        if batch.header().attributes.is_transactional() {
            return Err(no_transactions());
        }
        Ok((key, batch))
    }
}

/// Kafka's answer to a transactional batch without a transactional id: a batch that nobody would ever end.
fn no_transactions() -> Refusal {
    Refusal::with_message(ErrorCode::TransactionalIdAuthorizationFailed, "transactions do not exist here yet")
}

fn limits(settings: &TopicSettings, produce_version: i16) -> CheckLimits {
    let timestamps = match settings.timestamp_type {
        TimestampType::LogAppendTime => TimestampRule::Replaced,
        TimestampType::CreateTime => {
            TimestampRule::within(wall_clock_ms(), settings.timestamp_before_max_ms, settings.timestamp_after_max_ms)
        }
    };
    CheckLimits {
        batch_bytes_max: settings.batch_bytes_max,
        decompressed_bytes_max: DECOMPRESSED_BYTES_MAX,
        timestamps,
        null_keys: NullKeys::Allowed,
        produce_version,
    }
}

async fn answer(shard: Rc<Shard>, request: Request, mut answering: Answering) -> Response {
    for order in answering.orders {
        // A shard that is stopping answers nothing: its rows keep no outcome and say so below.
        for result in order.await.unwrap_or_default() {
            answering.rows[result.row].outcome = Some(result.outcome);
        }
    }
    if answering.acks == Acks::None {
        return unanswered(&answering.rows);
    }
    let mut response = ProduceResponse::default();
    for topic in &answering.topics {
        let (name, topic_id) = match topic {
            OwnedTopic::Name(name) => (name.clone(), sakia_protocol::ids::Uuid::ZERO),
            OwnedTopic::Id(id) => (String::new(), *id),
        };
        response.responses.push(TopicProduceResponse { name, topic_id, ..TopicProduceResponse::default() });
    }
    let mut leaders: Vec<BrokerId> = Vec::new();
    for row in answering.rows {
        let outcome = row.outcome.unwrap_or_else(|| Err(Refusal::code(ErrorCode::NotLeaderOrFollower)));
        if let Err(Refusal { leader: Some((leader, _)), .. }) = &outcome {
            leaders.push(*leader);
        }
        response.responses[row.topic].partition_responses.push(partition_response(row.index, outcome));
    }
    response.node_endpoints = endpoints(&shard, leaders);
    respond(&request, &response)
}

/// acks=0 has no answer; an error closes the connection, as in Kafka: it is the only way to tell the client.
fn unanswered(rows: &[Row]) -> Response {
    let failed = rows.iter().find_map(|row| match &row.outcome {
        Some(Err(refusal)) => Some(refusal.code),
        _ => None,
    });
    match failed {
        None => Response::Silent,
        Some(code) => Response::Close(format!("a produce request with acks=0 failed: {}", code.name())),
    }
}

fn partition_response(index: i32, outcome: Result<Produced, Refusal>) -> PartitionProduceResponse {
    match outcome {
        Ok(produced) => PartitionProduceResponse {
            index,
            error_code: ErrorCode::None.code(),
            base_offset: produced.base.get(),
            log_append_time_ms: produced.log_append_time_ms.unwrap_or(-1),
            log_start_offset: produced.log_start.get(),
            ..PartitionProduceResponse::default()
        },
        Err(refusal) => PartitionProduceResponse {
            index,
            error_code: refusal.code.code(),
            base_offset: -1,
            log_append_time_ms: -1,
            log_start_offset: -1,
            record_errors: refusal
                .records
                .into_iter()
                .map(|(batch_index, message)| BatchIndexAndErrorMessage {
                    batch_index,
                    batch_index_error_message: message,
                })
                .collect(),
            error_message: refusal.message,
            current_leader: LeaderIdAndEpoch {
                leader_id: BrokerId::to_wire(refusal.leader.map(|(leader, _)| leader)),
                leader_epoch: LeaderEpoch::to_wire(refusal.leader.map(|(_, epoch)| epoch)),
            },
        },
    }
}

fn endpoints(shard: &Shard, mut leaders: Vec<BrokerId>) -> Vec<NodeEndpoint> {
    leaders.sort_unstable();
    leaders.dedup();
    shard.with_image(|image| {
        let known = leaders.iter().filter_map(|id| {
            let broker = image.brokers.get(id)?;
            let listener = broker.listeners.first()?;
            Some(NodeEndpoint {
                node_id: id.get(),
                host: listener.host.clone(),
                port: i32::from(listener.port),
                rack: broker.rack.clone(),
            })
        });
        known.collect()
    })
}

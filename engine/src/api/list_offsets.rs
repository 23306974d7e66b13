//! ListOffsets: the offset for a timestamp, or Kafka's special values: -1 latest, -2 earliest, -3 largest timestamp, -4
//! earliest on the local disk, -5 latest in the slow tier (there is none yet).

use std::rc::Rc;

use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::{BrokerId, LeaderEpoch, Offset, PartitionIndex, PartitionKey};
use sakia_protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopicResponse,
};

use super::{decode, respond};
use crate::connection::{Request, Response};
use crate::messages::{LogAnswer, Question};
use crate::shard::Shard;

/// Smallest special timestamp that a version knows: -3 (largest timestamp) came with 7, -4 (earliest local) with 8, -5
/// (latest tiered) with 9.
fn smallest_special(version: i16) -> i64 {
    match version {
        ..7 => -2,
        7 => -3,
        8 => -4,
        _ => -5,
    }
}

pub(super) async fn answer(shard: Rc<Shard>, request: Request) -> Response {
    let body: ListOffsetsRequest = match decode(&request) {
        Ok(body) => body,
        Err(close) => return close,
    };
    let asked = Asked { version: request.api_version, replica: BrokerId::from_wire(body.replica_id) };
    let mut response = ListOffsetsResponse::default();
    for topic in body.topics {
        let topic_id = shard.with_image(|image| image.topic_named(&topic.name).map(|topic| topic.id));
        let mut rows = Vec::with_capacity(topic.partitions.len());
        for partition in &topic.partitions {
            let row = match (topic_id, PartitionIndex::from_wire(partition.partition_index)) {
                (Some(topic_id), Some(index)) => {
                    let key = PartitionKey { topic_id, partition: index };
                    row(&shard, key, partition, asked).await
                }
                _ => error_row(partition, ErrorCode::UnknownTopicOrPartition),
            };
            rows.push(row);
        }
        response.topics.push(ListOffsetsTopicResponse { name: topic.name, partitions: rows });
    }
    respond(&request, &response)
}

/// What all rows of a request share.
#[derive(Clone, Copy)]
struct Asked {
    version: i16,
    replica: Option<BrokerId>,
}

async fn row(
    shard: &Rc<Shard>,
    key: PartitionKey,
    wanted: &ListOffsetsPartition,
    asked: Asked,
) -> ListOffsetsPartitionResponse {
    if wanted.timestamp < smallest_special(asked.version) {
        return error_row(wanted, ErrorCode::UnsupportedVersion);
    }
    let question = match wanted.timestamp {
        // The latest offset of a replica is the end of the log, whatever is committed.
        -1 if asked.replica.is_some() => Question::End,
        timestamp => Question::OffsetFor { timestamp },
    };
    let epoch = LeaderEpoch::from_wire(wanted.current_leader_epoch);
    match shard.ask(key, epoch, question).await {
        LogAnswer::Offset { timestamp, offset, epoch } => ListOffsetsPartitionResponse {
            partition_index: wanted.partition_index,
            error_code: ErrorCode::None.code(),
            timestamp: timestamp.unwrap_or(-1),
            offset: Offset::to_wire(offset),
            leader_epoch: LeaderEpoch::to_wire(epoch),
        },
        LogAnswer::Refused(refusal) => error_row(wanted, refusal.code),
        LogAnswer::Epoch(_) => unreachable!("a question about an offset is answered with an offset"),
    }
}

fn error_row(wanted: &ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse {
    ListOffsetsPartitionResponse {
        partition_index: wanted.partition_index,
        error_code: error.code(),
        timestamp: -1,
        offset: -1,
        leader_epoch: -1,
    }
}

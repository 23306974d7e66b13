//! OffsetForLeaderEpoch: where an epoch ends in the leader's log. Clients and followers find their truncation point.

use std::rc::Rc;

use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::{LeaderEpoch, Offset, PartitionIndex, PartitionKey};
use sakia_protocol::messages::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
};

use super::{decode, respond};
use crate::connection::{Request, Response};
use crate::messages::{LogAnswer, Question};
use crate::shard::Shard;

pub(super) async fn answer(shard: Rc<Shard>, request: Request) -> Response {
    let body: OffsetForLeaderEpochRequest = match decode(&request) {
        Ok(body) => body,
        Err(close) => return close,
    };
    let mut response = OffsetForLeaderEpochResponse::default();
    for topic in body.topics {
        let topic_id = shard.with_image(|image| image.topic_named(&topic.topic).map(|topic| topic.id));
        let mut rows = Vec::with_capacity(topic.partitions.len());
        for partition in &topic.partitions {
            let row = match (topic_id, PartitionIndex::from_wire(partition.partition)) {
                (Some(topic_id), Some(index)) => {
                    row(&shard, PartitionKey { topic_id, partition: index }, partition).await
                }
                _ => end(partition, ErrorCode::UnknownTopicOrPartition, None),
            };
            rows.push(row);
        }
        response.topics.push(OffsetForLeaderTopicResult { topic: topic.topic, partitions: rows });
    }
    respond(&request, &response)
}

async fn row(shard: &Rc<Shard>, key: PartitionKey, wanted: &OffsetForLeaderPartition) -> EpochEndOffset {
    let Some(epoch) = LeaderEpoch::from_wire(wanted.leader_epoch) else {
        return end(wanted, ErrorCode::None, None);
    };
    let current = LeaderEpoch::from_wire(wanted.current_leader_epoch);
    match shard.ask(key, current, Question::EndOfEpoch { epoch }).await {
        LogAnswer::Epoch(found) => end(wanted, ErrorCode::None, found),
        LogAnswer::Refused(refusal) => end(wanted, refusal.code, None),
        LogAnswer::Offset { .. } => unreachable!("a question about an epoch is answered with an epoch"),
    }
}

fn end(wanted: &OffsetForLeaderPartition, error: ErrorCode, found: Option<(LeaderEpoch, Offset)>) -> EpochEndOffset {
    EpochEndOffset {
        error_code: error.code(),
        partition: wanted.partition,
        leader_epoch: LeaderEpoch::to_wire(found.map(|(epoch, _)| epoch)),
        end_offset: Offset::to_wire(found.map(|(_, offset)| offset)),
    }
}

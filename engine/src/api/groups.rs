//! Requests of groups: each goes to the shard that owns the group's partition of `__consumer_offsets`.
//!
//! JoinGroup, SyncGroup, Heartbeat, LeaveGroup, OffsetCommit, OffsetFetch, OffsetDelete, DescribeGroups, ListGroups,
//! DeleteGroups.

use std::rc::Rc;

use sakia_io::{oneshot, random_bytes};
use sakia_protocol::api::ApiKey;
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::{PartitionIndex, PartitionKey, Uuid};
use sakia_protocol::messages::delete_groups::{DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse};
use sakia_protocol::messages::describe_groups::{DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroup};
use sakia_protocol::messages::heartbeat::HeartbeatRequest;
use sakia_protocol::messages::join_group::JoinGroupRequest;
use sakia_protocol::messages::leave_group::LeaveGroupRequest;
use sakia_protocol::messages::list_groups::{ListGroupsRequest, ListGroupsResponse};
use sakia_protocol::messages::offset_commit::OffsetCommitRequest;
use sakia_protocol::messages::offset_delete::OffsetDeleteRequest;
use sakia_protocol::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponse,
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponseTopic,
};
use sakia_protocol::messages::sync_group::SyncGroupRequest;

use super::find_coordinator::offsets_partition;
use super::{decode, respond};
use crate::connection::{LocalFuture, Request, Response};
use crate::groups::{GroupAnswer, GroupBody, GroupRequest};
use crate::messages::ShardMessage;
use crate::shard::{OFFSETS_TOPIC, Shard};

/// Starts a group request. Requests of one connection reach their coordinator in order.
pub(super) async fn start(shard: Rc<Shard>, request: Request) -> LocalFuture<Response> {
    Box::pin(answer(shard, request))
}

async fn answer(shard: Rc<Shard>, request: Request) -> Response {
    let version = request.api_version;
    let body = match request.api_key {
        ApiKey::JoinGroup => decode::<JoinGroupRequest>(&request).map(|request| GroupBody::Join { version, request }),
        ApiKey::SyncGroup => decode::<SyncGroupRequest>(&request).map(GroupBody::Sync),
        ApiKey::Heartbeat => decode::<HeartbeatRequest>(&request).map(GroupBody::Heartbeat),
        ApiKey::LeaveGroup => {
            decode::<LeaveGroupRequest>(&request).map(|request| GroupBody::Leave { version, request })
        }
        ApiKey::OffsetCommit => decode::<OffsetCommitRequest>(&request).map(GroupBody::Commit),
        ApiKey::OffsetFetch => return offset_fetch(shard, request).await,
        ApiKey::DescribeGroups => return describe(shard, request).await,
        ApiKey::ListGroups => return list(shard, request).await,
        ApiKey::DeleteGroups => return delete(shard, request).await,
        ApiKey::OffsetDelete => decode::<OffsetDeleteRequest>(&request).map(GroupBody::DeleteOffsets),
        other => return Response::Close(format!("{} is not served here", other.name())),
    };
    let body = match body {
        Ok(body) => body,
        Err(close) => return close,
    };
    match ask(&shard, &request, body).await {
        GroupAnswer::Join(body) => respond(&request, &body),
        GroupAnswer::Sync(body) => respond(&request, &body),
        GroupAnswer::Heartbeat(body) => respond(&request, &body),
        GroupAnswer::Leave(body) => respond(&request, &body),
        GroupAnswer::Commit(body) => respond(&request, &body),
        GroupAnswer::DeleteOffsets(body) => respond(&request, &body),
        _ => Response::Close("a coordinator answered another question".to_owned()),
    }
}

/// Asks the coordinator of a group.
async fn ask(shard: &Rc<Shard>, request: &Request, body: GroupBody) -> GroupAnswer {
    let group = body.group_id().unwrap_or_default().to_owned();
    if group.is_empty() && !allows_empty_name(&body) {
        return body.refused(ErrorCode::InvalidGroupId);
    }
    match offsets_partition(shard, &group).await {
        Some(key) => ask_at(shard, request, key, body).await,
        None => body.refused(ErrorCode::CoordinatorNotAvailable),
    }
}

/// Commits and fetches of offsets work for the group with the empty name, as in Kafka.
fn allows_empty_name(body: &GroupBody) -> bool {
    matches!(body, GroupBody::Commit(_) | GroupBody::FetchOffsets(_) | GroupBody::Describe { .. })
}

async fn ask_at(shard: &Rc<Shard>, request: &Request, key: PartitionKey, body: GroupBody) -> GroupAnswer {
    let refused = body.refused(ErrorCode::CoordinatorNotAvailable);
    if shard.leader_of(&key).is_none_or(|(leader, _)| leader != shard.settings.node_id) {
        return body.refused(ErrorCode::NotCoordinator);
    }
    let asked = GroupRequest {
        client_id: request.client_id.clone().unwrap_or_default(),
        client_host: format!("/{}", request.peer.ip()),
        fresh: Uuid::from_bytes(random_bytes()),
        body,
    };
    let (reply, answer) = oneshot();
    let message = ShardMessage::Group { key, request: asked, reply };
    if !shard.deliver(shard.placement.owner(&key), message).await {
        return refused;
    }
    answer.await.unwrap_or(refused)
}

async fn describe(shard: Rc<Shard>, request: Request) -> Response {
    let body: DescribeGroupsRequest = match decode(&request) {
        Ok(body) => body,
        Err(close) => return close,
    };
    let mut groups: Vec<DescribedGroup> = Vec::with_capacity(body.groups.len());
    for group_id in body.groups {
        let asked = GroupBody::Describe { version: request.api_version, group_id };
        if let GroupAnswer::Describe(group) = ask(&shard, &request, asked).await {
            groups.push(group);
        }
    }
    respond(&request, &DescribeGroupsResponse { groups, ..DescribeGroupsResponse::default() })
}

async fn delete(shard: Rc<Shard>, request: Request) -> Response {
    let body: DeleteGroupsRequest = match decode(&request) {
        Ok(body) => body,
        Err(close) => return close,
    };
    let mut results = Vec::with_capacity(body.groups_names.len());
    for group_id in body.groups_names {
        let answer = ask(&shard, &request, GroupBody::Delete { group_id: group_id.clone() }).await;
        let GroupAnswer::Delete(error) = answer else { continue };
        results.push(DeletableGroupResult { group_id, error_code: error.code() });
    }
    respond(&request, &DeleteGroupsResponse { results, ..DeleteGroupsResponse::default() })
}

/// Every coordinator of this broker is asked; clients ask every broker.
async fn list(shard: Rc<Shard>, request: Request) -> Response {
    let body: ListGroupsRequest = match decode(&request) {
        Ok(body) => body,
        Err(close) => return close,
    };
    let mine: Vec<PartitionKey> = shard.with_image(|image| {
        let me = shard.settings.node_id;
        let topic = image.topic_named(OFFSETS_TOPIC);
        let rows = topic.iter().flat_map(|topic| topic.partitions.iter().zip(0..).map(|(p, n)| (topic.id, p, n)));
        rows.filter(|(_, partition, _)| partition.leader == Some(me))
            .map(|(topic_id, _, n)| PartitionKey { topic_id, partition: PartitionIndex::new(n) })
            .collect()
    });
    let mut response = ListGroupsResponse::default();
    for key in mine {
        let asked = GroupBody::List { states: body.states_filter.clone(), types: body.types_filter.clone() };
        if let GroupAnswer::List { error, groups } = ask_at(&shard, &request, key, asked).await {
            if error != ErrorCode::None {
                response.error_code = error.code();
            }
            response.groups.extend(groups);
        }
    }
    respond(&request, &response)
}

/// Version 8 asks for several groups; before that one group stands at the top level.
async fn offset_fetch(shard: Rc<Shard>, request: Request) -> Response {
    let body: OffsetFetchRequest = match decode(&request) {
        Ok(body) => body,
        Err(close) => return close,
    };
    if request.api_version >= 8 {
        let mut groups = Vec::with_capacity(body.groups.len());
        for group in body.groups {
            groups.push(fetch_one(&shard, &request, group).await);
        }
        return respond(&request, &OffsetFetchResponse { groups, ..OffsetFetchResponse::default() });
    }
    let topics = body.topics.map(|topics| {
        let topics = topics.into_iter().map(|topic| OffsetFetchRequestTopics {
            name: topic.name,
            partition_indexes: topic.partition_indexes,
            ..OffsetFetchRequestTopics::default()
        });
        topics.collect()
    });
    let group = OffsetFetchRequestGroup { group_id: body.group_id, topics, ..OffsetFetchRequestGroup::default() };
    let fetched = fetch_one(&shard, &request, group).await;
    respond(&request, &single(fetched))
}

async fn fetch_one(shard: &Rc<Shard>, request: &Request, group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup {
    let group_id = group.group_id.clone();
    match ask(shard, request, GroupBody::FetchOffsets(group)).await {
        GroupAnswer::FetchOffsets(fetched) => fetched,
        _ => OffsetFetchResponseGroup {
            group_id,
            error_code: ErrorCode::UnknownServerError.code(),
            ..OffsetFetchResponseGroup::default()
        },
    }
}

/// The answer before version 8.
fn single(group: OffsetFetchResponseGroup) -> OffsetFetchResponse {
    let topics = group.topics.into_iter().map(|topic| OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic
            .partitions
            .into_iter()
            .map(|partition| OffsetFetchResponsePartition {
                partition_index: partition.partition_index,
                committed_offset: partition.committed_offset,
                committed_leader_epoch: partition.committed_leader_epoch,
                metadata: partition.metadata,
                error_code: partition.error_code,
            })
            .collect(),
    });
    OffsetFetchResponse { topics: topics.collect(), error_code: group.error_code, ..OffsetFetchResponse::default() }
}

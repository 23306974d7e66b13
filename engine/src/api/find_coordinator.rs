//! FindCoordinator: which broker a group talks to: the leader of its partition of `__consumer_offsets`.

use std::rc::Rc;

use sakia_io::oneshot;
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::{BrokerId, PartitionKey};
use sakia_protocol::messages::find_coordinator::{Coordinator, FindCoordinatorRequest, FindCoordinatorResponse};

use super::{decode, respond};
use crate::connection::{Request, Response};
use crate::groups::partition_for;
use crate::messages::ControlMessage;
use crate::shard::{OFFSETS_TOPIC, Shard};

/// Kafka's key types: 0 group, 1 transaction, 2 share group.
const KEY_GROUP: i8 = 0;

pub(super) async fn answer(shard: Rc<Shard>, request: Request) -> Response {
    let body: FindCoordinatorRequest = match decode(&request) {
        Ok(body) => body,
        Err(close) => return close,
    };
    if request.api_version >= 4 {
        let mut coordinators = Vec::with_capacity(body.coordinator_keys.len());
        for key in body.coordinator_keys {
            coordinators.push(find(&shard, key, body.key_type).await);
        }
        return respond(&request, &FindCoordinatorResponse { coordinators, ..FindCoordinatorResponse::default() });
    }
    let found = find(&shard, body.key, body.key_type).await;
    let response = FindCoordinatorResponse {
        error_code: found.error_code,
        error_message: found.error_message,
        node_id: found.node_id,
        host: found.host,
        port: found.port,
        ..FindCoordinatorResponse::default()
    };
    respond(&request, &response)
}

async fn find(shard: &Rc<Shard>, key: String, key_type: i8) -> Coordinator {
    if key_type != KEY_GROUP {
        return refused(key, ErrorCode::CoordinatorNotAvailable, "only groups have coordinators here so far");
    }
    if key.is_empty() {
        return refused(key, ErrorCode::InvalidGroupId, "a group has a name");
    }
    let Some(partition) = offsets_partition(shard, &key).await else {
        return refused(key, ErrorCode::CoordinatorNotAvailable, "the offsets topic is being created");
    };
    let leader = shard.leader_of(&partition).map(|(leader, _)| leader);
    let address = leader.and_then(|leader| shard.addresses_of(vec![leader]).pop());
    match address {
        Some((id, host, port, _)) => Coordinator {
            key,
            node_id: id.get(),
            host,
            port: i32::from(port),
            error_code: ErrorCode::None.code(),
            error_message: None,
        },
        None => refused(key, ErrorCode::CoordinatorNotAvailable, "its partition has no leader at present"),
    }
}

fn refused(key: String, code: ErrorCode, why: &str) -> Coordinator {
    Coordinator {
        key,
        node_id: BrokerId::to_wire(None),
        host: String::new(),
        port: -1,
        error_code: code.code(),
        error_message: Some(why.to_owned()),
    }
}

/// The partition of `__consumer_offsets` that a group lives in; the topic is created if it is not there.
pub(super) async fn offsets_partition(shard: &Rc<Shard>, group: &str) -> Option<PartitionKey> {
    let look = || {
        shard.with_image(|image| {
            let topic = image.topic_named(OFFSETS_TOPIC)?;
            let partition = partition_for(group, i32::try_from(topic.partitions.len()).ok()?);
            Some(PartitionKey { topic_id: topic.id, partition })
        })
    };
    if let Some(found) = look() {
        return Some(found);
    }
    let (reply, answer) = oneshot();
    let message = ControlMessage::AutoCreate { names: vec![OFFSETS_TOPIC.to_owned()], reply };
    shard.addresses.control.send(message).await.ok()?;
    answer.await?;
    look()
}

//! Kafka's requests, one file each, by Kafka's names.
//!
//! Path: from `connection` to the owner shards and back. A request is decoded here, its wire numbers become typed
//! values, its parts go to the shards that own them, and the answer is put together again.
//!
//! Invariant: what `SUPPORTED` says is what `start` serves: every version in a range gets a whole answer.

mod api_versions;
mod describe_cluster;
mod describe_configs;
mod fetch;
mod find_coordinator;
mod forward;
mod groups;
mod init_producer_id;
mod list_offsets;
mod metadata;
mod offset_for_leader_epoch;
mod produce;
mod replica_fetch;

use std::rc::Rc;
use std::time::Duration;

use sakia_metrics::{Counter, Histogram};
use sakia_protocol::api::ApiKey;
use sakia_protocol::codec::{Decode, Encode, decode_exact};
use sakia_protocol::header::encode_response;

use crate::connection::{Dispatch, LocalFuture, Request, Response};
use crate::shard::Shard;

/// Requests of the client listener with the versions we serve. Source: kafka-apis (docs/SOURCES.md).
///
/// Produce is listed from 0 although versions below 3 are refused: old librdkafka turns compression off otherwise.
pub const SUPPORTED: &[(ApiKey, i16, i16)] = &[
    (ApiKey::Produce, 0, 13),
    (ApiKey::Fetch, 4, 18),
    (ApiKey::ListOffsets, 1, 10),
    (ApiKey::Metadata, 0, 13),
    (ApiKey::OffsetCommit, 2, 9),
    (ApiKey::OffsetFetch, 1, 9),
    (ApiKey::FindCoordinator, 0, 6),
    (ApiKey::JoinGroup, 0, 9),
    (ApiKey::Heartbeat, 0, 4),
    (ApiKey::LeaveGroup, 0, 5),
    (ApiKey::SyncGroup, 0, 5),
    (ApiKey::DescribeGroups, 0, 6),
    (ApiKey::ListGroups, 0, 5),
    (ApiKey::ApiVersions, 0, 4),
    (ApiKey::CreateTopics, 2, 7),
    (ApiKey::DeleteTopics, 1, 6),
    (ApiKey::InitProducerId, 0, 5),
    (ApiKey::OffsetForLeaderEpoch, 2, 4),
    (ApiKey::DescribeConfigs, 1, 4),
    (ApiKey::CreatePartitions, 0, 3),
    (ApiKey::DeleteGroups, 0, 2),
    (ApiKey::OffsetDelete, 0, 0),
    (ApiKey::DescribeCluster, 0, 2),
];

/// The API of a broker's client listener, on one shard.
pub struct BrokerApi {
    shard: Rc<Shard>,
    /// In the order of `SUPPORTED`; last whatever else was asked. Handles are kept: counting takes no lock.
    counters: Vec<(Counter, Histogram)>,
}

impl BrokerApi {
    /// The API over a shard.
    #[must_use]
    pub fn new(shard: Rc<Shard>) -> Rc<Self> {
        let names = SUPPORTED.iter().map(|(key, ..)| key.name()).chain(["other"]);
        let handles = |name| (shard.counters.requests.with(&[name]), shard.counters.request_micros.with(&[name]));
        let counters = names.map(handles).collect();
        Rc::new(Self { shard, counters })
    }
}

impl Dispatch for BrokerApi {
    fn start(self: Rc<Self>, request: Request) -> LocalFuture<LocalFuture<Response>> {
        let shard = self.shard.clone();
        Box::pin(start(shard, request))
    }

    fn answered(&self, request: ApiKey, took: Duration) {
        let place = SUPPORTED.iter().position(|(key, ..)| *key == request).unwrap_or(SUPPORTED.len());
        let (requests, micros) = &self.counters[place];
        requests.increment();
        micros.record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    fn refused(&self) {
        self.shard.counters.bad_connections.increment();
    }
}

async fn start(shard: Rc<Shard>, request: Request) -> LocalFuture<Response> {
    let key = request.api_key;
    if key == ApiKey::ApiVersions {
        return ready(api_versions::answer(&request));
    }
    if !SUPPORTED.iter().any(|(k, min, max)| *k == key && (*min..=*max).contains(&request.api_version)) {
        return ready(unsupported(&request));
    }
    match key {
        ApiKey::Produce => produce::start(shard, request).await,
        ApiKey::Fetch => fetch::start(shard, request),
        ApiKey::ListOffsets => Box::pin(list_offsets::answer(shard, request)),
        ApiKey::Metadata => Box::pin(metadata::answer(shard, request)),
        ApiKey::FindCoordinator => Box::pin(find_coordinator::answer(shard, request)),
        ApiKey::CreateTopics | ApiKey::DeleteTopics | ApiKey::CreatePartitions => {
            Box::pin(forward::answer(shard, request))
        }
        ApiKey::InitProducerId => Box::pin(init_producer_id::answer(shard, request)),
        ApiKey::OffsetForLeaderEpoch => Box::pin(offset_for_leader_epoch::answer(shard, request)),
        ApiKey::DescribeConfigs => Box::pin(describe_configs::answer(shard, request)),
        ApiKey::DescribeCluster => Box::pin(describe_cluster::answer(shard, request)),
        _ => groups::start(shard, request).await,
    }
}

fn ready(response: Response) -> LocalFuture<Response> {
    Box::pin(std::future::ready(response))
}

fn unsupported(request: &Request) -> Response {
    Response::Close(format!("{} version {} is not served here", request.api_key.name(), request.api_version))
}

/// Decodes a body; a body that does not parse closes the connection, as in Kafka.
fn decode<T: Decode>(request: &Request) -> Result<T, Response> {
    decode_exact(&request.body(), request.api_version).map_err(|error| {
        Response::Close(format!("bad {} request version {}: {error}", request.api_key.name(), request.api_version))
    })
}

/// Encodes an answer.
fn respond<T: Encode>(request: &Request, body: &T) -> Response {
    match encode_response(request.api_key, request.api_version, request.correlation_id, body) {
        Ok(frame) => Response::Pieces(vec![frame]),
        Err(error) => Response::Close(format!("could not encode the {} answer: {error}", request.api_key.name())),
    }
}

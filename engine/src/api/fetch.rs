//! Fetch: records out, to consumers and to replicas.
//!
//! Path: frame → `FetchView` (borrowed) → one order per owner shard → waits for enough, or for the deadline → the answer,
//! whose records are the log's own bytes.
//!
//! A consumer reads again whenever one of its partitions changes; a replica's fetch is in `replica_fetch`. Fetch sessions
//! are answered with session id 0 for now: every request names all its partitions.
//! Cost: no copy of record bytes.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use sakia_io::{Answer, Moment, Reply, Signal, now, oneshot, timeout};
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::fetch_response::{
    CurrentLeader, DivergingEpoch, FetchResponseStart, FetchResponseWriter, FetchedPartition, NodeEndpoint,
};
use sakia_protocol::fetch_view::FetchView;
use sakia_protocol::ids::{PartitionIndex, PartitionKey, TopicId};
use sakia_protocol::topic_ref::TopicRef;

use super::replica_fetch;
use crate::connection::{LocalFuture, Request, Response};
use crate::limits::{FETCH_BYTES_MAX, FETCH_WAIT_MAX};
use crate::log::AtLeastOne;
use crate::messages::{FetchOrder, LastRead, PartitionRead, ReadResult, Reader, ShardId, ShardMessage, Waiting};
use crate::shard::Shard;

/// The request, taken apart.
pub(super) struct Fetching {
    pub(super) topics: Vec<FetchingTopic>,
    /// Reads of partitions that exist, in request order.
    pub(super) reads: Vec<PartitionRead>,
    /// Rows that are answered without a read.
    pub(super) failed: Vec<ReadResult>,
    pub(super) bytes_max: usize,
    pub(super) bytes_min: usize,
    pub(super) deadline: Moment,
}

/// One topic of the request and its rows.
pub(super) struct FetchingTopic {
    name: String,
    id: TopicId,
    rows: Vec<(usize, i32)>,
}

pub(super) fn start(shard: Rc<Shard>, request: Request) -> LocalFuture<Response> {
    Box::pin(async move {
        let mut view = FetchView::new();
        if let Err(error) = view.decode(&request.frame, request.body_start, request.api_version) {
            return Response::Close(format!("bad Fetch request version {}: {error}", request.api_version));
        }
        let fetching = take_apart(&shard, &view);
        match view.replica() {
            Some(replica) => replica_fetch::answer(shard, request, &view, replica, fetching).await,
            None => {
                let rack = Some(view.rack_id()).filter(|rack| !rack.is_empty()).map(str::to_owned);
                consumer(shard, request, fetching, rack).await
            }
        }
    })
}

fn take_apart(shard: &Shard, view: &FetchView) -> Fetching {
    let wait = Duration::from_millis(u64::try_from(view.max_wait_ms()).unwrap_or(0)).min(FETCH_WAIT_MAX);
    let bytes_max = usize::try_from(view.max_bytes()).unwrap_or(0);
    let mut fetching = Fetching {
        topics: Vec::new(),
        reads: Vec::new(),
        failed: Vec::new(),
        bytes_max: if view.replica().is_some() { bytes_max } else { bytes_max.min(FETCH_BYTES_MAX) },
        bytes_min: usize::try_from(view.min_bytes()).unwrap_or(0),
        deadline: now() + wait,
    };
    let mut row = 0;
    for topic in view.topics() {
        let (found, unknown) = shard.with_image(|image| match topic.topic {
            TopicRef::Name(name) => (image.topic_named(name).cloned(), ErrorCode::UnknownTopicOrPartition),
            TopicRef::Id(id) => (image.topic(&id).cloned(), ErrorCode::UnknownTopicId),
        });
        let (name, id) = match topic.topic {
            TopicRef::Name(name) => (name.to_owned(), TopicId::ZERO),
            TopicRef::Id(id) => (String::new(), id),
        };
        let mut rows = Vec::with_capacity(topic.partitions.len());
        for partition in topic.partitions {
            rows.push((row, partition.index));
            let known = found.as_ref().ok_or(unknown).and_then(|topic| {
                let index = PartitionIndex::from_wire(partition.index).filter(|p| p.index() < topic.partitions.len());
                let index = index.ok_or(ErrorCode::UnknownTopicOrPartition)?;
                Ok(PartitionKey { topic_id: topic.id, partition: index })
            });
            match known {
                Ok(key) => fetching.reads.push(PartitionRead {
                    row,
                    key,
                    offset: partition.fetch_offset,
                    current_leader_epoch: partition.current_leader_epoch,
                    last_fetched_epoch: partition.last_fetched_epoch,
                    log_start: partition.log_start_offset,
                    bytes_max: usize::try_from(partition.partition_max_bytes).unwrap_or(0),
                    bytes_until: None,
                }),
                Err(code) => fetching.failed.push(ReadResult::error(row, code)),
            }
            row += 1;
        }
        fetching.topics.push(FetchingTopic { name, id, rows });
    }
    fetching
}

/// A consumer's fetch: reads until there is enough, an error, or no time left.
async fn consumer(shard: Rc<Shard>, request: Request, fetching: Fetching, rack: Option<String>) -> Response {
    let reader = Reader::Consumer { rack };
    loop {
        let waiter = Signal::new();
        let expired = now() >= fetching.deadline;
        let parked = (!expired).then(|| Waiting { session: request.session, signal: waiter.clone() });
        let last = if expired { LastRead::Yes } else { LastRead::IfAny };
        let results = read_all(&shard, &fetching, &reader, last, parked).await;
        let bytes: usize = results.iter().flat_map(|row| &row.records).map(bytes::Bytes::len).sum();
        let failed = !fetching.failed.is_empty()
            || results.iter().any(|row| row.error != ErrorCode::None || row.preferred_replica.is_some());
        if expired || failed || bytes >= fetching.bytes_min {
            return write(&shard, &request, &fetching, results, None);
        }
        let left = fetching.deadline.as_duration().saturating_sub(now().as_duration());
        let _ = timeout(left, waiter.wait()).await;
    }
}

/// Reads every partition once, each shard its own. Of a consumer's bounds only the first partition with records may take
/// one batch too much (KIP-74), so only one shard is allowed to; if that one finds nothing, and what others found does not
/// fit, the first of them is read again.
pub(super) async fn read_all(
    shard: &Rc<Shard>,
    fetching: &Fetching,
    reader: &Reader,
    last: LastRead,
    waiter: Option<Waiting>,
) -> Vec<ReadResult> {
    let mut by_shard: BTreeMap<ShardId, Vec<PartitionRead>> = BTreeMap::new();
    for read in &fetching.reads {
        by_shard.entry(shard.placement.owner(&read.key)).or_default().push(read.clone());
    }
    // Each shard may give its part: together no more than was asked for, and one batch.
    let share = fetching.bytes_max / by_shard.len().max(1);
    let foremost = fetching.reads.first().map(|read| shard.placement.owner(&read.key));
    let mut answers = Vec::with_capacity(by_shard.len());
    for (owner, reads) in by_shard {
        let may_exceed = foremost == Some(owner) || matches!(reader, Reader::Replica(_));
        let first = if may_exceed { AtLeastOne::Yes } else { AtLeastOne::No };
        let (reader, waiter) = (reader.clone(), waiter.clone());
        let order = |reply| FetchOrder { reads, bytes_max: share, first, reader, last, waiter, reply };
        answers.extend(hand_over(shard, owner, order).await);
    }
    let mut results = Vec::with_capacity(fetching.reads.len());
    for answer in answers {
        results.extend(answer.await.unwrap_or_default());
    }
    if results.iter().all(|row| row.records.is_empty())
        && let Some(place) = foremost_withheld(&results)
        && let Some(read) = fetching.reads.iter().find(|read| read.row == results[place].row)
    {
        let (reads, bytes_max, first) = (vec![read.clone()], fetching.bytes_max, AtLeastOne::Yes);
        let owner = shard.placement.owner(&read.key);
        let reader = reader.clone();
        let order = |reply| FetchOrder { reads, bytes_max, first, reader, last, waiter: None, reply };
        if let Some(answer) = hand_over(shard, owner, order).await {
            results.splice(place..=place, answer.await.unwrap_or_default());
        }
    }
    results
}

/// Where the row that comes first in the request stands, of those whose records did not fit.
fn foremost_withheld(results: &[ReadResult]) -> Option<usize> {
    let withheld = results.iter().enumerate().filter(|(_, row)| row.is_withheld);
    withheld.min_by_key(|(_, row)| row.row).map(|(place, _)| place)
}

/// Hands reads to their shard; `None` if it is gone.
async fn hand_over(
    shard: &Rc<Shard>,
    owner: ShardId,
    order: impl FnOnce(Reply<Vec<ReadResult>>) -> FetchOrder,
) -> Option<Answer<Vec<ReadResult>>> {
    let (reply, answer) = oneshot();
    shard.deliver(owner, ShardMessage::Fetch(order(reply))).await.then_some(answer)
}

/// Writes the answer. Rows without a result (a shard is stopping) say NOT_LEADER_OR_FOLLOWER.
pub(super) fn write(
    shard: &Shard,
    request: &Request,
    fetching: &Fetching,
    results: Vec<ReadResult>,
    private: Option<&[u8]>,
) -> Response {
    let mut rows: BTreeMap<usize, ReadResult> = results.into_iter().map(|row| (row.row, row)).collect();
    rows.extend(fetching.failed.iter().map(|row| (row.row, row.clone())));
    let leaders: Vec<_> = rows.values().filter_map(|row| Some(row.leader?.0)).collect();
    let addresses = shard.addresses_of(leaders);
    let endpoints: Vec<NodeEndpoint<'_>> = addresses
        .iter()
        .map(|(id, host, port, rack)| NodeEndpoint { id: *id, host, port: *port, rack: rack.as_deref() })
        .collect();
    match write_rows(request, fetching, &mut rows, &endpoints, private) {
        Ok(pieces) => Response::Pieces(pieces),
        Err(error) => Response::Close(format!("could not encode the Fetch answer: {error}")),
    }
}

fn write_rows(
    request: &Request,
    fetching: &Fetching,
    rows: &mut BTreeMap<usize, ReadResult>,
    endpoints: &[NodeEndpoint<'_>],
    private: Option<&[u8]>,
) -> Result<Vec<bytes::Bytes>, sakia_protocol::codec::WireError> {
    let start = FetchResponseStart {
        correlation_id: request.correlation_id,
        throttle_time_ms: 0,
        error_code: ErrorCode::None.code(),
        session_id: 0,
    };
    let mut writer = FetchResponseWriter::new(request.api_version, start, fetching.topics.len())?;
    for topic in &fetching.topics {
        let by = if request.api_version >= 13 { TopicRef::Id(topic.id) } else { TopicRef::Name(&topic.name) };
        writer.topic(by, topic.rows.len())?;
        for (row, index) in &topic.rows {
            let result = rows.remove(row).unwrap_or_else(|| ReadResult::error(*row, ErrorCode::NotLeaderOrFollower));
            // A replica of ours has no use for it, and is told by it which partitions the objects of the answer are for.
            let tells_stable = private.is_none() || !result.references.is_empty();
            let partition = FetchedPartition {
                index: *index,
                error_code: result.error.code(),
                high_watermark: result.high_watermark,
                last_stable_offset: result.high_watermark.filter(|_| tells_stable),
                log_start_offset: result.log_start,
                aborted_transactions: None,
                preferred_read_replica: result.preferred_replica,
                diverging_epoch: result.diverging.map(|(epoch, end_offset)| DivergingEpoch { epoch, end_offset }),
                current_leader: result
                    .leader
                    .map(|(leader, leader_epoch)| CurrentLeader { leader_id: Some(leader), leader_epoch }),
                snapshot_id: None,
            };
            writer.partition(&partition, result.records)?;
        }
    }
    writer.finish(endpoints, private)
}

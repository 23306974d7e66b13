//! A fetcher's session with its leader: fetches, at most two under way.
//!
//! One fetch is parked at the leader. When ends were stored meanwhile the next one is sent at once: it reports them, and
//! the leader completes the parked one on its arrival. A lost connection, or references that were dropped here, begin a
//! new session; the leader then hands out anew from the stored ends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sakia_io::{Class, Task, now, random_u64, sleep, sleep_until, spawn, timeout};
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionIndex, PartitionKey};
use sakia_protocol::messages::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData, ReplicaState,
};
use sakia_protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use sakia_remote::wal_tag::{BytesUntil, FetchPlace, WalRequest, WalResponse, Wants};
use tracing::{debug, info, warn};

use super::Fetcher;
use crate::limits::PEER_ANSWER_BYTES_MAX;
use crate::messages::{
    CombinerMessage, Followed, Named, Replicated, ReplicatedBytes, ShardId, ShardMessage, WantedObject, WantedSlice,
};
use crate::rpc::{Peer, PeerAddress, RpcError};
use crate::select::{Either, either};
use crate::shard::Shard;

/// Version of the replica's Fetch: topic ids, replica epochs, our tagged field.
const FETCH_VERSION: i16 = 17;
const LIST_OFFSETS_VERSION: i16 = 6;

/// Kafka's special timestamps: where a log begins and where it ends.
const EARLIEST: i64 = -2;
const LATEST: i64 = -1;

/// How long the leader may take to say so.
const LIST_OFFSETS_MAX: Duration = Duration::from_secs(5);

/// Fetches under way: the parked one, and the one that reports newer ends.
const FETCHES_MAX: usize = 2;

/// Stored ends are gathered for this long before they are reported: one object's slices are stored together.
const GATHER: Duration = Duration::from_micros(300);

/// Rest of a partition whose row was refused: newer metadata is on its way, to us or to the leader. It doubles with each
/// refusal up to the second, until the owner says something about the partition.
pub(super) const REST: Duration = Duration::from_millis(50);
const REST_MAX: Duration = Duration::from_secs(1);

/// Pause before a lost connection is tried again; half of it is jitter.
const RECONNECT: Duration = Duration::from_millis(100);

/// A fetch that is under way: what was asked, and the answer to come.
struct UnderWay {
    asked: Rc<BTreeMap<PartitionKey, Followed>>,
    answer: Task<Result<FetchResponse, RpcError>>,
}

/// Follows the leader for as long as the shard lives.
pub(super) async fn run(shard: Rc<Shard>, fetcher: Rc<Fetcher>) {
    loop {
        if fetcher.entries.borrow().is_empty() {
            fetcher.wake.wait().await;
            continue;
        }
        match connect(&shard, &fetcher) {
            Some(peer) => {
                fetcher.anew.set(false);
                let began = now();
                fetcher.sessions.set(fetcher.sessions.get() + 1);
                let ended = keep(&shard, &fetcher, &peer).await;
                debug!(leader = %fetcher.leader, "replica session ended: {ended}");
                // At once, unless what it began anew for comes again and again.
                if ended == Ended::Anew && now() - began >= RECONNECT {
                    continue;
                }
            }
            None => debug!(leader = %fetcher.leader, "no replica session: the leader's address is not known"),
        }
        let jitter = Duration::from_micros(random_u64() % 50_000);
        let _ = timeout(RECONNECT / 2 + jitter, fetcher.wake.wait()).await;
        sleep(RECONNECT / 2).await;
    }
}

/// A peer for one session; it connects with the first fetch. `None` if the leader's address is not known.
fn connect(shard: &Shard, fetcher: &Fetcher) -> Option<Rc<Peer>> {
    let address = shard.with_image(|image| {
        let listener = image.brokers.get(&fetcher.leader)?.listeners.first()?;
        Some((listener.host.clone(), listener.port))
    });
    let (host, port) = address?;
    let client_id = format!("sakia-replica-{}", shard.settings.node_id);
    let address = PeerAddress { host, port, client_id, answer_bytes_max: PEER_ANSWER_BYTES_MAX };
    Some(Rc::new(Peer::new(address, Class::Foreground)))
}

/// Why a session ended.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Ended {
    /// It was ended here, to begin anew at once.
    Anew,
    /// Nothing is followed any more.
    Idle,
    /// The leader, or the way to it, failed.
    Failed(String),
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Anew => f.write_str("to begin anew"),
            Self::Idle => f.write_str("nothing to follow"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

async fn keep(shard: &Rc<Shard>, fetcher: &Rc<Fetcher>, peer: &Rc<Peer>) -> Ended {
    let mut answered = false;
    let mut under_way: VecDeque<UnderWay> = VecDeque::new();
    loop {
        if fetcher.anew.take() {
            return Ended::Anew;
        }
        if under_way.is_empty() {
            fetcher.reading.room().await;
            match fetch(shard, fetcher, peer) {
                Some(fetch) => under_way.push_back(fetch),
                None if fetcher.entries.borrow().is_empty() => return Ended::Idle,
                None => {
                    let _ = timeout(REST, fetcher.wake.wait()).await;
                    continue;
                }
            }
        }
        let full = under_way.len() >= FETCHES_MAX;
        let first = under_way.front_mut().expect("a fetch is under way");
        let moved = async {
            if full {
                pending::<()>().await;
            }
            // A refused row is asked for again when its rest is over: the fetch under way may be parked without it.
            either(fetcher.wake.wait(), rest_is_over(fetcher)).await
        };
        match either(&mut first.answer, moved).await {
            Either::Left(answer) => {
                let asked = under_way.pop_front().expect("it was answered").asked;
                match answer {
                    Ok(response) => {
                        if !std::mem::replace(&mut answered, true) {
                            info!(leader = %fetcher.leader, "replica session stands");
                        }
                        if let Err(why) = take(shard, fetcher, &asked, response, peer).await {
                            return Ended::Failed(why);
                        }
                    }
                    Err(error) => return Ended::Failed(error.to_string()),
                }
            }
            Either::Right(_) => {
                sleep(GATHER).await;
                fetcher.reading.room().await;
                if let Some(fetch) = fetch(shard, fetcher, peer) {
                    under_way.push_back(fetch);
                }
            }
        }
    }
}

/// Waits for the first of the partitions that rest now.
async fn rest_is_over(fetcher: &Fetcher) {
    let first = fetcher.entries.borrow().values().filter_map(|entry| entry.resting_until).min();
    match first {
        Some(until) => sleep_until(until).await,
        None => pending().await,
    }
}

/// Sends a fetch of everything that is followed and does not rest; `None` if there is nothing.
fn fetch(shard: &Rc<Shard>, fetcher: &Rc<Fetcher>, peer: &Rc<Peer>) -> Option<UnderWay> {
    let at = now();
    let mut asked = BTreeMap::new();
    for (key, entry) in fetcher.entries.borrow_mut().iter_mut() {
        if entry.resting_until.is_some_and(|until| at < until) {
            continue;
        }
        entry.resting_until = None;
        asked.insert(*key, entry.followed.clone());
    }
    if asked.is_empty() {
        return None;
    }
    let request = request(shard, fetcher, &asked)?;
    let patience = shard.settings.replica.fetch_wait_max * 2 + Duration::from_secs(5);
    let peer = peer.clone();
    let answer = spawn(Class::Foreground, async move { peer.call(&request, FETCH_VERSION, patience).await });
    Some(UnderWay { asked: Rc::new(asked), answer })
}

/// `None` while this broker is not registered: the leader takes state only from a registration (R11).
fn request(shard: &Shard, fetcher: &Fetcher, asked: &BTreeMap<PartitionKey, Followed>) -> Option<FetchRequest> {
    let replica_epoch: BrokerEpoch = shard.registration()?;
    let settings = &shard.settings.replica;
    let mut topics: Vec<FetchTopic> = Vec::new();
    for followed in asked.values() {
        let row = FetchPartition {
            partition: followed.key.partition.get(),
            current_leader_epoch: followed.leader_epoch.get(),
            fetch_offset: followed.stored.get(),
            last_fetched_epoch: LeaderEpoch::to_wire(followed.last_epoch),
            log_start_offset: followed.log_start.get(),
            // The limit of the whole reply: an object is read once, however much of it belongs to one partition. What comes
            // as record bytes the leader limits by its own `replica.fetch.max.bytes`.
            partition_max_bytes: i32::try_from(settings.response_bytes).unwrap_or(i32::MAX),
            ..FetchPartition::default()
        };
        match topics.last_mut().filter(|topic| topic.topic_id == followed.key.topic_id) {
            Some(topic) => topic.partitions.push(row),
            None => topics.push(FetchTopic {
                topic_id: followed.key.topic_id,
                partitions: vec![row],
                ..FetchTopic::default()
            }),
        }
    }
    let bytes_until =
        asked.values().filter_map(|followed| Some(BytesUntil { key: followed.key, offset: followed.bytes_until? }));
    let wants = if shard.bucket_is_usable() { Wants::References } else { Wants::Bytes };
    fetcher.fetches.set(fetcher.fetches.get() + 1);
    let place = FetchPlace { session: fetcher.sessions.get(), number: fetcher.fetches.get() };
    let wal = WalRequest { place, wants, bytes_until: bytes_until.collect() };
    Some(FetchRequest {
        max_wait_ms: i32::try_from(settings.fetch_wait_max.as_millis()).unwrap_or(i32::MAX),
        min_bytes: 1,
        max_bytes: i32::try_from(settings.response_bytes).unwrap_or(i32::MAX),
        topics,
        replica_state: ReplicaState { replica_id: shard.settings.node_id.get(), replica_epoch: replica_epoch.get() },
        sakia_wal: Some(wal.encode()),
        ..FetchRequest::default()
    })
}

/// Hands on what a reply holds.
async fn take(
    shard: &Rc<Shard>,
    fetcher: &Rc<Fetcher>,
    asked: &BTreeMap<PartitionKey, Followed>,
    response: FetchResponse,
    peer: &Rc<Peer>,
) -> Result<(), String> {
    if response.error_code != ErrorCode::None.code() {
        return Err(format!("the leader refused the fetch: {}", ErrorCode::from_wire(response.error_code).name()));
    }
    if let Some(wal) = &response.sakia_wal {
        let wal = WalResponse::decode(wal).map_err(|error| format!("bad object path field: {error}"))?;
        read_objects(shard, fetcher, asked, wal, &named_partitions(&response)).await;
    }
    let mut by_shard: BTreeMap<ShardId, Vec<Replicated>> = BTreeMap::new();
    let mut out_of_range = Vec::new();
    for topic in response.responses {
        for row in topic.partitions {
            let Some(followed) = PartitionIndex::from_wire(row.partition_index)
                .and_then(|partition| asked.get(&PartitionKey { topic_id: topic.topic_id, partition }))
            else {
                continue;
            };
            if ErrorCode::from_wire(row.error_code) == ErrorCode::OffsetOutOfRange {
                rest(fetcher, followed);
                out_of_range.push(followed.clone());
                continue;
            }
            let Some(what) = row_bytes(fetcher, followed, row) else { continue };
            by_shard.entry(followed.shard).or_default().push(Replicated {
                key: followed.key,
                generation: followed.generation,
                leader_epoch: followed.leader_epoch,
                what,
            });
        }
    }
    deliver(shard, by_shard).await;
    find_ranges(shard, fetcher, peer, out_of_range);
    Ok(())
}

async fn deliver(shard: &Rc<Shard>, by_shard: BTreeMap<ShardId, Vec<Replicated>>) {
    for (owner, rows) in by_shard {
        shard.deliver(owner, ShardMessage::Replicated(rows)).await;
    }
}

/// What a row means; `None` if there is nothing to hand on.
fn row_bytes(fetcher: &Rc<Fetcher>, followed: &Followed, row: PartitionData) -> Option<ReplicatedBytes> {
    match ErrorCode::from_wire(row.error_code) {
        ErrorCode::None => {}
        // Newer metadata will say who leads, here or there.
        error => {
            debug!(partition = %followed.key, error = error.name(), "a followed partition rests");
            rest(fetcher, followed);
            return None;
        }
    }
    let diverging = &row.diverging_epoch;
    if let (Some(epoch), Some(end)) = (LeaderEpoch::from_wire(diverging.epoch), Offset::from_wire(diverging.end_offset))
    {
        rest(fetcher, followed);
        return Some(ReplicatedBytes::Diverging { epoch, end });
    }
    Some(ReplicatedBytes::Row {
        records: row.records.unwrap_or_default(),
        high_watermark: Offset::from_wire(row.high_watermark),
        log_start: Offset::from_wire(row.log_start_offset),
    })
}

/// A refused partition is left out for a moment, unless its owner says something new about it.
fn rest(fetcher: &Fetcher, followed: &Followed) {
    if let Some(entry) = fetcher.entries.borrow_mut().get_mut(&followed.key)
        && entry.followed.generation == followed.generation
    {
        entry.resting_until = Some(now() + entry.rest);
        entry.rest = (entry.rest * 2).min(REST_MAX);
    }
}

/// The partitions that the objects of an answer are for: rows with a last stable offset, which no replica needs for anything
/// else.
fn named_partitions(response: &FetchResponse) -> BTreeSet<PartitionKey> {
    let rows = response.responses.iter().flat_map(|topic| {
        let topic_id = topic.topic_id;
        topic.partitions.iter().map(move |row| (topic_id, row))
    });
    let named = rows.filter(|(_, row)| row.last_stable_offset >= 0);
    named
        .filter_map(|(topic_id, row)| {
            Some(PartitionKey { topic_id, partition: PartitionIndex::from_wire(row.partition_index)? })
        })
        .collect()
}

/// One GET per object: everything followed here may want a slice of it.
async fn read_objects(
    shard: &Rc<Shard>,
    fetcher: &Fetcher,
    asked: &BTreeMap<PartitionKey, Followed>,
    wal: WalResponse,
    named: &BTreeSet<PartitionKey>,
) {
    let Some(combiner) = shard.addresses.combiner.as_ref().filter(|_| !wal.objects.is_empty()) else { return };
    let wanted: Arc<[WantedSlice]> = asked
        .values()
        .map(|followed| WantedSlice {
            key: followed.key,
            shard: followed.shard,
            generation: followed.generation,
            leader_epoch: followed.leader_epoch,
            stored: followed.stored,
            named: if named.contains(&followed.key) { Named::Yes } else { Named::No },
        })
        .collect();
    let objects = wal.objects.into_iter().map(|object| {
        let place = fetcher.reading.place(u64::from(object.get_end));
        WantedObject { object, wanted: wanted.clone(), place }
    });
    let _ = combiner.send(CombinerMessage::Get(objects.collect())).await;
}

/// The followers' ends lie outside the leader's logs: asks where those begin and end, all at once. One task does; what comes
/// meanwhile it asks about next.
fn find_ranges(shard: &Rc<Shard>, fetcher: &Rc<Fetcher>, peer: &Rc<Peer>, followed: Vec<Followed>) {
    if followed.is_empty() {
        return;
    }
    fetcher.out_of_range.borrow_mut().extend(followed.into_iter().map(|followed| (followed.key, followed)));
    if fetcher.finds_ranges.replace(true) {
        return;
    }
    let (shard, fetcher, peer) = (shard.clone(), fetcher.clone(), peer.clone());
    spawn(Class::Foreground, async move {
        loop {
            let followed: Vec<Followed> = fetcher.out_of_range.take().into_values().collect();
            if followed.is_empty() {
                break;
            }
            let rows = ranges(&shard, &fetcher, &peer, &followed).await;
            deliver(&shard, rows).await;
        }
        fetcher.finds_ranges.set(false);
    })
    .detach();
}

/// Where the leader's logs of these partitions begin and end, for their owners; nothing of those that the leader is silent about:
/// they are refused again.
async fn ranges(
    shard: &Rc<Shard>,
    fetcher: &Fetcher,
    peer: &Rc<Peer>,
    followed: &[Followed],
) -> BTreeMap<ShardId, Vec<Replicated>> {
    let me = shard.settings.node_id;
    let starts = bounds(peer, me, followed, EARLIEST).await;
    let ends = bounds(peer, me, followed, LATEST).await;
    let mut by_shard: BTreeMap<ShardId, Vec<Replicated>> = BTreeMap::new();
    let mut unknown = 0_usize;
    for followed in followed {
        let place = (followed.topic.clone(), followed.key.partition.get());
        let (Some(leader_start), Some(leader_end)) = (starts.get(&place), ends.get(&place)) else {
            unknown += 1;
            continue;
        };
        by_shard.entry(followed.shard).or_default().push(Replicated {
            key: followed.key,
            generation: followed.generation,
            leader_epoch: followed.leader_epoch,
            what: ReplicatedBytes::OutOfRange { leader_start: *leader_start, leader_end: *leader_end },
        });
    }
    if unknown > 0 {
        warn!(leader = %fetcher.leader, partitions = unknown, "the leader did not say where its logs begin and end");
    }
    by_shard
}

/// Offsets of a special timestamp, by topic and partition; what the leader does not say is missing.
async fn bounds(
    peer: &Rc<Peer>,
    me: BrokerId,
    followed: &[Followed],
    timestamp: i64,
) -> BTreeMap<(String, i32), Offset> {
    let mut topics: Vec<ListOffsetsTopic> = Vec::new();
    for followed in followed {
        let partition = ListOffsetsPartition {
            partition_index: followed.key.partition.get(),
            current_leader_epoch: followed.leader_epoch.get(),
            timestamp,
        };
        match topics.last_mut().filter(|topic| topic.name == followed.topic) {
            Some(topic) => topic.partitions.push(partition),
            None => topics.push(ListOffsetsTopic { name: followed.topic.clone(), partitions: vec![partition] }),
        }
    }
    let request = ListOffsetsRequest { replica_id: me.get(), topics, ..ListOffsetsRequest::default() };
    let Ok(response) = peer.call(&request, LIST_OFFSETS_VERSION, LIST_OFFSETS_MAX).await else {
        return BTreeMap::new();
    };
    let rows = response.topics.into_iter().flat_map(|topic| {
        let name = topic.name;
        topic.partitions.into_iter().map(move |row| ((name.clone(), row.partition_index), row.offset))
    });
    rows.filter_map(|(place, offset)| Some((place, Offset::from_wire(offset)?))).collect()
}

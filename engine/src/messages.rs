//! What threads of a broker say to each other.
//!
//! Every message goes through a bounded `sakia_io` mailbox; a question carries a one-shot reply, so its answer never
//! needs room in a mailbox and two shards cannot wait for each other. Each variant says who owns the bytes afterwards.
//!
//! Invariant: nothing here borrows; record bytes travel as leases (`Bytes`), never as copies.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sakia_controller::{Event, Image};
use sakia_io::{Lease, Reply, Sender, Signal};
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::batch::CheckedBatch;
use sakia_protocol::ids::{
    BrokerEpoch, BrokerId, LeaderEpoch, MetadataIndex, Offset, PartitionEpoch, PartitionIndex, PartitionKey, Uuid,
};
pub use sakia_protocol::produce_view::Acks;
use sakia_remote::object::SliceHeader;
use sakia_remote::pack::ReadyRange;
use sakia_remote::{ObjectReference, ReferencedObject};

use crate::fetcher::Place;
use crate::groups::{GroupAnswer, GroupRequest};
use crate::log::AtLeastOne;
use crate::replication::GetFailure;

/// Number of a shard in its broker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ShardId(usize);

impl ShardId {
    /// The shard with this number.
    #[must_use]
    pub fn new(index: usize) -> Self {
        Self(index)
    }

    /// Its number.
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }
}

/// Where the threads of one broker are reached.
#[derive(Clone)]
pub struct Addresses {
    /// The owner shards, by number.
    pub shards: Arc<[Sender<ShardMessage>]>,
    /// The combiner shard; absent when the object path is off.
    pub combiner: Option<Sender<CombinerMessage>>,
    /// The control shard.
    pub control: Sender<ControlMessage>,
}

/// Batches of one produce request for one owner shard. The receiver reads the bytes and drops them.
pub struct ProduceOrder {
    /// The batches, in request order.
    pub batches: Vec<ProduceBatch>,
    /// Their rule.
    pub acks: Acks,
    /// How long acks=all may take.
    pub timeout: Duration,
    /// One result per batch, in order; with `Acks::None` too, so that an error can close the connection.
    pub reply: Reply<Vec<ProduceResult>>,
}

/// One checked batch and where it goes.
pub struct ProduceBatch {
    /// Its row in the request.
    pub row: usize,
    /// Its partition.
    pub key: PartitionKey,
    /// Its bytes.
    pub batch: CheckedBatch,
}

/// What became of one batch.
pub struct ProduceResult {
    /// Its row in the request.
    pub row: usize,
    /// Where it stands, or why it was refused.
    pub outcome: Result<Produced, Refusal>,
}

/// A batch that was acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Produced {
    /// Offset of its first record.
    pub base: Offset,
    /// The leader's stamp on LogAppendTime topics.
    pub log_append_time_ms: Option<i64>,
    /// First offset of the log.
    pub log_start: Offset,
}

/// An error for one partition of a request.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Kafka's code.
    pub code: ErrorCode,
    /// What a person should know; `None` where the code says it all.
    pub message: Option<String>,
    /// Records at fault (index in the batch, what is wrong).
    pub records: Vec<(i32, Option<String>)>,
    /// The leader to go to instead, with its epoch, where known.
    pub leader: Option<(BrokerId, LeaderEpoch)>,
}

impl Refusal {
    /// A bare code.
    #[must_use]
    pub fn code(code: ErrorCode) -> Self {
        Self { code, message: None, records: Vec::new(), leader: None }
    }

    /// A code with a sentence.
    #[must_use]
    pub fn with_message(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { message: Some(message.into()), ..Self::code(code) }
    }
}

/// Reads of one fetch request for one owner shard.
pub struct FetchOrder {
    /// The reads, in request order.
    pub reads: Vec<PartitionRead>,
    /// Record bytes for all of them together.
    pub bytes_max: usize,
    /// Whether the first batch found is given even if it is larger than the bounds.
    pub first: AtLeastOne,
    /// Who reads.
    pub reader: Reader,
    /// Whether the answer goes out whatever it holds.
    pub last: LastRead,
    /// Raised when a partition of this order may have more than the answer says; `None` if nobody will wait.
    pub waiter: Option<Waiting>,
    /// One result per read, in order. Record bytes are lent until the answer is sent.
    pub reply: Reply<Vec<ReadResult>>,
}

/// A reader that will wait: its connection, and what to raise.
#[derive(Clone)]
pub struct Waiting {
    /// Number of its connection.
    pub session: u64,
    /// Raised when it should read again.
    pub signal: Signal,
}

/// Whether a fetch is answered with what this read gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LastRead {
    /// Yes.
    Yes,
    /// Only if it gives something.
    IfAny,
}

/// Who fetches.
#[derive(Clone, Debug)]
pub enum Reader {
    /// A consumer, with its `client.rack`.
    Consumer { rack: Option<String> },
    /// A follower.
    Replica(ReplicaReader),
}

/// A follower's fetch, as far as it concerns all its partitions.
#[derive(Clone, Debug)]
pub struct ReplicaReader {
    /// The follower broker.
    pub broker: BrokerId,
    /// Its registration; `None` from fetch versions that do not say.
    pub broker_epoch: Option<BrokerEpoch>,
    /// Session of the replica's connection: grows with every connection, never goes back (R11).
    pub session: u64,
    /// Request number in the session.
    pub session_epoch: u64,
    /// Whether it takes references.
    pub wants_references: bool,
}

/// One partition of a fetch.
#[derive(Clone, Debug)]
pub struct PartitionRead {
    /// Its row in the request.
    pub row: usize,
    /// The partition.
    pub key: PartitionKey,
    /// From where.
    pub offset: i64,
    /// Leader epoch that the reader believes in.
    pub current_leader_epoch: Option<LeaderEpoch>,
    /// Epoch of the reader's last record.
    pub last_fetched_epoch: Option<LeaderEpoch>,
    /// The follower's log start.
    pub log_start: Option<Offset>,
    /// Record bytes for this partition.
    pub bytes_max: usize,
    /// The follower wants bytes up to here (`BytesUntil`).
    pub bytes_until: Option<Offset>,
}

/// What a read gave.
#[derive(Clone, Debug)]
pub struct ReadResult {
    /// Its row in the request.
    pub row: usize,
    /// Kafka's code; the ends below are -1 on the wire when it is not NONE.
    pub error: ErrorCode,
    /// High watermark.
    pub high_watermark: Option<Offset>,
    /// First offset of the log.
    pub log_start: Option<Offset>,
    /// Where the follower's log leaves the leader's: (epoch, its end).
    pub diverging: Option<(LeaderEpoch, Offset)>,
    /// The leader to go to instead.
    pub leader: Option<(BrokerId, LeaderEpoch)>,
    /// The replica that a consumer should read instead.
    pub preferred_replica: Option<BrokerId>,
    /// Whole batches, lent.
    pub records: Vec<Lease>,
    /// References, for a follower that takes them.
    pub references: Vec<SliceReference>,
    /// There are records, and the bounds left no room for their first batch.
    pub is_withheld: bool,
    /// The reader lacks news of the high watermark, which an answer would bring.
    pub has_news: bool,
    /// Read again at this time at the latest (time since the broker's start).
    pub again_at: Option<Duration>,
}

impl ReadResult {
    /// Whether it gives the reader something to do.
    #[must_use]
    pub fn has_data(&self) -> bool {
        !self.records.is_empty() || !self.references.is_empty() || self.diverging.is_some()
    }

    /// A row with nothing but an error.
    #[must_use]
    pub fn error(row: usize, error: ErrorCode) -> Self {
        Self {
            row,
            error,
            high_watermark: None,
            log_start: None,
            diverging: None,
            leader: None,
            preferred_replica: None,
            records: Vec::new(),
            references: Vec::new(),
            is_withheld: false,
            has_news: false,
            again_at: None,
        }
    }
}

/// A slice that a follower may take from an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceReference {
    /// The object.
    pub object: ObjectReference,
    /// Position in the object where the slice ends: what a GET must reach.
    pub end: u32,
}

/// A question about one partition's log.
#[derive(Clone, Copy, Debug)]
pub enum Question {
    /// ListOffsets: a timestamp, or Kafka's negative special values.
    OffsetFor { timestamp: i64 },
    /// ListOffsets of a replica for the latest: the stored end, not what is committed.
    End,
    /// OffsetForLeaderEpoch.
    EndOfEpoch { epoch: LeaderEpoch },
}

/// Its answer.
#[derive(Clone, Debug)]
pub enum LogAnswer {
    /// Timestamp and offset (either may be unknown) and the epoch of that offset.
    Offset { timestamp: Option<i64>, offset: Option<Offset>, epoch: Option<LeaderEpoch> },
    /// The epoch found and its end, or neither.
    Epoch(Option<(LeaderEpoch, Offset)>),
    /// Why there is no answer.
    Refused(Refusal),
}

/// A slice that stands in the bucket.
#[derive(Clone, Debug)]
pub struct PublishedSlice {
    /// Its partition.
    pub key: PartitionKey,
    /// Generation of the partition when the bytes were lent (R7).
    pub generation: u64,
    /// Epoch of its batches.
    pub leader_epoch: LeaderEpoch,
    /// First offset.
    pub base: Offset,
    /// Offset after its last record.
    pub next: Offset,
    /// The object.
    pub object: ObjectReference,
    /// Number of the slice in the manifest.
    pub slice: u32,
    /// Where it starts in the object.
    pub start: u32,
    /// Where it ends in the object.
    pub end: u32,
}

/// An object that stands in the bucket, for the metadata topic. Of `object` only bucket, stream and sequence count.
#[derive(Clone, Debug)]
pub struct WrittenObject {
    /// Its name.
    pub object: ObjectReference,
    /// Its prelude and manifest.
    pub head: Bytes,
}

/// A range that went back to its shard without an object (R12).
#[derive(Clone, Copy, Debug)]
pub struct ReturnedRange {
    /// Its partition.
    pub key: PartitionKey,
    /// Generation when it was lent.
    pub generation: u64,
    /// First offset.
    pub base: Offset,
    /// Offset after its last record.
    pub next: Offset,
}

/// What a follower partition got from its leader, or from the bucket.
pub struct Replicated {
    /// The partition.
    pub key: PartitionKey,
    /// Generation under which it was asked for (R7).
    pub generation: u64,
    /// Leader epoch under which it was asked for.
    pub leader_epoch: LeaderEpoch,
    /// What came.
    pub what: ReplicatedBytes,
}

/// The forms in which a follower's bytes come.
pub enum ReplicatedBytes {
    /// A row of a fetch reply: record bytes (may be empty), the leader's high watermark and log start.
    Row { records: Bytes, high_watermark: Option<Offset>, log_start: Option<Offset> },
    /// A slice of an object that was read and checked.
    Slice { object: ObjectReference, header: SliceHeader, bytes: Bytes },
    /// The follower's log leaves the leader's here: truncate.
    Diverging { epoch: LeaderEpoch, end: Offset },
    /// The follower's end lies outside the leader's log, which is this.
    OutOfRange { leader_start: Offset, leader_end: Offset },
    /// An object could not be read (R12): how it failed.
    ObjectFailed { object: ObjectReference, failure: GetFailure },
}

/// What the fetcher of a leader broker is told by owner shards.
pub enum FetcherMessage {
    /// Follow this partition from here. Replaces an older entry of the key.
    Follow(Followed),
    /// Stop following.
    Unfollow { key: PartitionKey, generation: u64 },
    /// References that were handed out were dropped here: only a new session gives them again.
    NewSession,
}

/// State of one followed partition, as its fetch row needs it.
#[derive(Clone, Debug)]
pub struct Followed {
    /// The partition.
    pub key: PartitionKey,
    /// Name of its topic.
    pub topic: String,
    /// Its owner shard.
    pub shard: ShardId,
    /// Generation of the owner's state.
    pub generation: u64,
    /// The leadership followed.
    pub leader_epoch: LeaderEpoch,
    /// Stored end: the fetch offset (R1).
    pub stored: Offset,
    /// Epoch of the last stored record.
    pub last_epoch: Option<LeaderEpoch>,
    /// Log start.
    pub log_start: Offset,
    /// Bytes wanted up to here.
    pub bytes_until: Option<Offset>,
}

/// An AlterPartition proposal.
#[derive(Clone, Debug)]
pub struct IsrProposal {
    /// The partition.
    pub key: PartitionKey,
    /// Leadership under which it is proposed.
    pub leader_epoch: LeaderEpoch,
    /// Partition epoch it builds on.
    pub partition_epoch: PartitionEpoch,
    /// The new set with the members' registrations.
    pub isr: Vec<(BrokerId, BrokerEpoch)>,
}

/// What an owner shard is told or asked.
pub enum ShardMessage {
    /// Append these.
    Produce(ProduceOrder),
    /// Read these.
    Fetch(FetchOrder),
    /// Answer about one log.
    Ask { key: PartitionKey, current_leader_epoch: Option<LeaderEpoch>, question: Question, reply: Reply<LogAnswer> },
    /// The cluster as it is: replaces what the shard knew.
    Image { index: MetadataIndex, image: Arc<Image> },
    /// What changed in the cluster.
    Delta { index: MetadataIndex, events: Arc<[Event]> },
    /// Slices that stand in the bucket; leases are back.
    Published(Vec<PublishedSlice>),
    /// Objects for the metadata topic, in the order of their sequence. To shard 0.
    Announce(Vec<WrittenObject>),
    /// The same, to the owner of this broker's partition of that topic.
    WriteAnnouncements { key: PartitionKey, objects: Vec<WrittenObject> },
    /// Ranges that will not be uploaded; leases are back.
    Returned(Vec<ReturnedRange>),
    /// Bytes for followers. The shard owns them.
    Replicated(Vec<Replicated>),
    /// For the fetcher of this leader, which lives on this shard.
    Fetcher { leader: BrokerId, message: FetcherMessage },
    /// A request of a group whose coordinator lives on this shard.
    Group { key: PartitionKey, request: GroupRequest, reply: Reply<GroupAnswer> },
    /// Another shard opens a log in the folder that this partition had: answered once nothing here uses it.
    Release { key: PartitionKey, reply: Reply<()> },
    /// What the checkpoint files are to hold of this shard.
    Checkpoint { reply: Reply<ShardCheckpoint> },
    /// The broker is about to stop: append nothing more for producers. Answered once everything appended here is committed,
    /// so that whoever leads next has it, whatever its acks.
    HandOver { reply: Reply<()> },
    /// The broker goes on after a hand-over: producers are served again where it leads.
    Resume,
    /// End the shard cleanly: logs are written and closed. The answer is what the checkpoint files are to hold.
    Stop { reply: Reply<ShardCheckpoint> },
    /// End the shard at once: the process cannot go on, and nothing more may be acknowledged (R6).
    Halt,
}

/// What the checkpoint files are to hold of one shard.
#[derive(Clone, Default, Debug)]
pub struct ShardCheckpoint {
    /// Its open logs.
    pub rows: Vec<CheckpointRow>,
    /// Every log that the metadata wants here was opened. Until then what the files held at the start stays for the others.
    pub is_complete: bool,
}

/// One partition's row in the checkpoint files.
#[derive(Clone, Debug)]
pub struct CheckpointRow {
    /// Name of its topic.
    pub topic: String,
    /// Its number.
    pub partition: PartitionIndex,
    /// Everything below survives a power loss.
    pub recovery_point: Offset,
    /// First offset of the log.
    pub log_start: Offset,
    /// What is committed.
    pub high_watermark: Offset,
}

/// What the combiner is told or asked.
pub enum CombinerMessage {
    /// Bytes for the bucket, lent until `Published` or `Returned` comes back.
    Ready(Vec<ReadyRange>),
    /// Read these objects once and hand their slices to the owner shards.
    Get(Vec<WantedObject>),
    /// The broker has a registration: objects are named by it from now on.
    Registered { broker_epoch: BrokerEpoch, incarnation: Uuid },
    /// Finish what is in flight and end.
    Stop { reply: Reply<()> },
}

/// One object to read, with the partitions that want slices of it.
pub struct WantedObject {
    /// The object, and how far it is to be read.
    pub object: ReferencedObject,
    /// Who wants its slices, by key.
    pub wanted: Arc<[WantedSlice]>,
    /// Counts the read as under way until it is dropped.
    pub place: Place,
}

/// A partition that wants its slice.
#[derive(Clone, Copy, Debug)]
pub struct WantedSlice {
    /// The partition.
    pub key: PartitionKey,
    /// Its owner shard.
    pub shard: ShardId,
    /// Generation of the owner's state.
    pub generation: u64,
    /// The leadership followed.
    pub leader_epoch: LeaderEpoch,
    /// Slices below are not wanted.
    pub stored: Offset,
    /// Whether the leader named the object, or another of the same answer, for this partition.
    pub named: Named,
}

/// Whether an answer's objects are for a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named {
    /// They are: if one cannot be read the partition lacks something.
    Yes,
    /// A slice of it may lie in them all the same.
    No,
}

/// What the control shard is told or asked.
pub enum ControlMessage {
    /// Propose ISR changes. What is taken shows as a metadata event; the codes say what was refused or is unknown.
    AlterPartition { proposals: Vec<IsrProposal>, reply: Reply<Vec<(PartitionKey, ErrorCode)>> },
    /// Send a request to the controller as it was received; the answer is the response body's frame.
    Forward { frame: Bytes, reply: Reply<Option<Bytes>> },
    /// Create a topic because a client asked for it.
    AutoCreate { names: Vec<String>, reply: Reply<Vec<(String, ErrorCode)>> },
    /// Somebody else's object stands where this registration's next one belongs: its stream is over (R13).
    StreamOver { broker_epoch: BrokerEpoch },
    /// A fresh producer id.
    ProducerId { reply: Reply<Result<i64, ErrorCode>> },
    /// Stop cleanly: tell the controller, then end.
    Stop { reply: Reply<()> },
}

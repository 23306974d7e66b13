//! What a replica's fetch of one partition is answered with: references, bytes, nothing yet, or why not.
//!
//! Pure. Path: decoded Fetch → [`check_fetch`] → `LeaderState::on_follower_fetch` → [`plan`] (again at each wake-up of a parked
//! fetch) → answer → `LeaderState::on_answered`.
//! Rule: R9. A reply gives one partition references or bytes, never both. Rule: R12 decides between them.
//! Only slices of the current leader epoch are handed out as references: they lie in the leader's lineage whatever else
//! their object holds, and a follower can tell them by their epoch. Older ones come as bytes.

use std::time::Duration;

use sakia_protocol::ids::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionKey};
use sakia_remote::ObjectReference;

use super::leader::LeaderState;
use super::limits::{HANDED_BYTES_MAX, HANDED_SLICES_MAX, REFERENCES_PER_REPLY_MAX};
use super::progress::{HandedBy, Progress, SessionStamp};
use super::truncation::{EpochEnd, Lineage, diverging};
use super::upload::UploadProgress;
use super::wal_index::{IndexedSlice, WalIndex};
use crate::log::epochs::EpochCache;

/// Whether a follower takes references at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wants {
    /// Where the leader has them.
    References,
    /// Never now: its breaker for the bucket is open, or it knows nothing of objects.
    Bytes,
}

/// One partition of a follower's fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaFetch {
    /// Who fetches.
    pub broker: BrokerId,
    /// Its registration.
    pub broker_epoch: Option<BrokerEpoch>,
    /// Place among its fetches.
    pub stamp: SessionStamp,
    /// The leadership it follows.
    pub leader_epoch: Option<LeaderEpoch>,
    /// Its stored end (R1), the fetch offset.
    pub end: Offset,
    /// Epoch of its last record.
    pub last_epoch: Option<LeaderEpoch>,
    /// First offset of its log.
    pub log_start: Option<Offset>,
    /// References or bytes.
    pub wants: Wants,
    /// Must get bytes below this offset.
    pub bytes_until: Option<Offset>,
}

/// A fetch that fits the leader's epoch and log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckedFetch(ReplicaFetch);

impl CheckedFetch {
    /// The fetch itself.
    #[must_use]
    pub fn fetch(&self) -> &ReplicaFetch {
        &self.0
    }
}

/// Why a fetch gets no data, by what the follower does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetchRefusal {
    /// UNKNOWN_LEADER_EPOCH 75: this broker's metadata is older; ask again.
    UnknownLeaderEpoch,
    /// FENCED_LEADER_EPOCH 74, also when no epoch is named: take newer metadata.
    FencedLeaderEpoch,
    /// Truncate by this and ask again.
    Diverging(EpochEnd),
    /// OFFSET_OUT_OF_RANGE 1: begin anew at the leader's log start.
    OutOfRange,
}

/// The leader's log at the time of a fetch.
#[derive(Clone, Copy, Debug)]
pub struct LeaderLog<'a> {
    /// First offset.
    pub start: Offset,
    /// Offset after the last appended record: a follower may hold more than is stored here (R1).
    pub appended: Offset,
    /// Which epoch wrote what.
    pub epochs: &'a EpochCache,
}

/// Checks epoch, lineage and range of a follower's fetch. A fetch that does not pass must not change what is known of the
/// follower: its end is no beginning of this log.
pub fn check_fetch(
    fetch: ReplicaFetch,
    leader: &LeaderState,
    log: LeaderLog<'_>,
) -> Result<CheckedFetch, FetchRefusal> {
    match fetch.leader_epoch {
        Some(epoch) if epoch > leader.leader_epoch() => return Err(FetchRefusal::UnknownLeaderEpoch),
        Some(epoch) if epoch == leader.leader_epoch() => {}
        _ => return Err(FetchRefusal::FencedLeaderEpoch),
    }
    if fetch.end < log.start {
        return Err(FetchRefusal::OutOfRange);
    }
    let lineage = Lineage {
        epochs: log.epochs,
        leader_epoch: leader.leader_epoch(),
        epoch_start: leader.epoch_start(),
        end: log.appended,
    };
    if let Some(parting) = fetch.last_epoch.and_then(|last| diverging(lineage, last, fetch.end)) {
        return Err(FetchRefusal::Diverging(parting));
    }
    if fetch.end > log.appended {
        return Err(FetchRefusal::OutOfRange);
    }
    Ok(CheckedFetch(fetch))
}

/// Why bytes are sent although references are the rule. A label of the metric of cross-zone bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BytesReason {
    /// The partition has no object path, or the follower does not take references.
    NoReferences,
    /// The follower asked for bytes up to an offset above its end.
    BytesUntil,
    /// The offset lies behind the index, in a hole of the object history, or in an older epoch.
    Behind,
    /// The upload takes too long, or the queue is full.
    UploadLate,
    /// References were given and nothing was stored for too long.
    NoProgress,
}

/// What to answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Plan {
    /// These slices, contiguous.
    References(Vec<IndexedSlice>),
    /// Record bytes from `from`, below `below`.
    Bytes { from: Offset, below: Offset, why: BytesReason },
    /// Nothing yet. Plan again when something is appended, stored or published, and at this time at the latest.
    Empty { until: Option<Duration> },
}

/// Everything a plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The partition.
    pub key: PartitionKey,
    /// Its leader's state.
    pub leader: &'a LeaderState,
    /// Its uploads; `None`: no object path.
    pub upload: Option<&'a UploadProgress>,
    /// This shard's index.
    pub index: &'a WalIndex,
    /// Most bytes for this partition.
    pub bytes_max: u64,
    /// `remote.wal.fallback.after.ms`.
    pub fallback_after: Duration,
    /// Now.
    pub now: Duration,
}

/// Decides the answer to a fetch that was taken. Takes the bytes of references from the reply's budget; those of record
/// bytes are for the caller to take when they are read.
#[must_use]
pub fn plan(fetch: &CheckedFetch, situation: Situation<'_>, budget: &mut ReplyBudget) -> Plan {
    let fetch = fetch.fetch();
    let stored = situation.leader.stored();
    let Some(progress) = situation.leader.progress(fetch.broker) else { return Plan::Empty { until: None } };
    let Some(upload) = situation.upload.filter(|_| fetch.wants == Wants::References) else {
        return match given(fetch.end, progress, situation) {
            // The follower asks again before it has stored them: sent twice they would cost twice.
            Given::UnderWay { by: HandedBy::Bytes, until, .. } => Plan::Empty { until: Some(until) },
            Given::UnderWay { .. } | Given::Nothing | Given::Lost => {
                bytes(fetch.end, stored, BytesReason::NoReferences)
            }
        };
    };
    let from = match given(fetch.end, progress, situation) {
        Given::Nothing => fetch.end,
        Given::Lost => return bytes(fetch.end, stored, BytesReason::NoProgress),
        Given::UnderWay { next, by: HandedBy::Reference, .. } if wants_bytes_now(fetch) => {
            return bytes(fetch.end, stored.min(next.max(fetch.end)), BytesReason::BytesUntil);
        }
        Given::UnderWay { by: HandedBy::Bytes, until, .. } => return Plan::Empty { until: Some(until) },
        Given::UnderWay { next, until, .. } if is_handed_enough(fetch.end, next, situation) => {
            return Plan::Empty { until: Some(until) };
        }
        Given::UnderWay { next, .. } => next,
    };
    if wants_bytes_now(fetch) {
        return bytes(fetch.end, stored, BytesReason::BytesUntil);
    }
    let epoch = situation.leader.leader_epoch();
    let slices = situation.index.references_from(situation.key, from).take_while(|slice| slice.leader_epoch == epoch);
    let mut slices = slices.take(HANDED_SLICES_MAX).peekable();
    if slices.peek().is_some() {
        let admitted = budget.admit(slices, situation.bytes_max);
        // The budget is used up: the rest of this reply's partitions comes next time.
        return if admitted.is_empty() { Plan::Empty { until: None } } else { Plan::References(admitted) };
    }
    without_references(fetch, from, upload, situation)
}

/// Whether as much is under way by reference as a follower can keep.
fn is_handed_enough(end: Offset, next: Offset, situation: Situation<'_>) -> bool {
    let slices = situation.index.references_from(situation.key, end).take_while(|slice| slice.base < next);
    let (mut bytes, mut count) = (0, 0);
    slices.into_iter().any(|slice| {
        bytes += usize::try_from(slice.len()).expect("32 bits fit");
        count += 1;
        bytes >= HANDED_BYTES_MAX || count >= HANDED_SLICES_MAX
    })
}

fn wants_bytes_now(fetch: &ReplicaFetch) -> bool {
    fetch.bytes_until.is_some_and(|until| fetch.end < until)
}

/// What was given to this follower beyond its stored end.
enum Given {
    Nothing,
    UnderWay {
        next: Offset,
        by: HandedBy,
        until: Duration,
    },
    /// It was given something, and nothing came of it for the fallback time.
    Lost,
}

fn given(end: Offset, progress: &Progress, situation: Situation<'_>) -> Given {
    match progress.handed() {
        Some(handed) if handed.next > end => {
            let until = handed.at + situation.fallback_after;
            if situation.now >= until {
                return Given::Lost;
            }
            Given::UnderWay { next: handed.next, by: handed.by, until }
        }
        _ => Given::Nothing,
    }
}

/// No slice is found from `from` on: is one on its way, or must the follower get bytes?
fn without_references(fetch: &ReplicaFetch, from: Offset, upload: &UploadProgress, situation: Situation<'_>) -> Plan {
    let stored = situation.leader.stored();
    if from > fetch.end {
        // References are under way; bytes would have to begin below them. When they are stored, or lost, we decide anew.
        let until = situation.leader.progress(fetch.broker).and_then(Progress::handed);
        return Plan::Empty { until: until.map(|handed| handed.at + situation.fallback_after) };
    }
    let held = situation.index.next_held(situation.key, from).filter(|held| *held > from);
    let below = stored.min(held.unwrap_or(stored));
    if upload.is_proving() {
        return bytes(from, below, BytesReason::UploadLate);
    }
    match upload.wait_until(from) {
        Some(until) if situation.now < until => Plan::Empty { until: Some(until) },
        Some(_) => bytes(from, below, BytesReason::UploadLate),
        // Nothing is appended there yet, or it is lent when this turn ends.
        None if from >= upload.lent() => Plan::Empty { until: None },
        None if from < upload.in_flight() => bytes(from, below.min(upload.in_flight()), BytesReason::Behind),
        None => bytes(from, below, BytesReason::Behind),
    }
}

fn bytes(from: Offset, below: Offset, why: BytesReason) -> Plan {
    if from < below { Plan::Bytes { from, below, why } } else { Plan::Empty { until: None } }
}

/// What one reply may still hold. References count as the bytes that their GETs fetch, each object once (Rule: R9).
#[derive(Clone, Debug)]
pub struct ReplyBudget {
    bytes_left: u64,
    is_empty: bool,
    objects: Vec<(ObjectReference, u32)>,
}

impl ReplyBudget {
    /// A reply of at most `bytes_max`, or of one slice or batch that is larger.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_left: bytes_max, is_empty: true, objects: Vec::new() }
    }

    /// Bytes left; for the first partition with something to give one batch is allowed above it.
    #[must_use]
    pub fn bytes_left(&self) -> u64 {
        self.bytes_left
    }

    /// Whether nothing is in the reply yet: the next batch is taken whatever its size.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Record bytes go into the reply.
    pub fn take_bytes(&mut self, bytes: u64) {
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        self.is_empty &= bytes == 0;
    }

    /// The objects of the reply, each with the position up to which it must be read, in the order of their first use.
    #[must_use]
    pub fn objects(&self) -> &[(ObjectReference, u32)] {
        &self.objects
    }

    fn admit<'a>(&mut self, slices: impl Iterator<Item = &'a IndexedSlice>, bytes_max: u64) -> Vec<IndexedSlice> {
        let mut admitted = Vec::new();
        let mut partition_left = bytes_max;
        for slice in slices {
            let known = self.objects.iter().rposition(|(object, _)| *object == slice.object);
            let read = known.map_or(0, |place| self.objects[place].1);
            let cost = u64::from(slice.end.saturating_sub(read));
            let fits = cost <= self.bytes_left && u64::from(slice.len()) <= partition_left;
            // An object is read once: what it holds beyond the limits goes along with its first slice, at most one object.
            let room = self.objects.len() < REFERENCES_PER_REPLY_MAX && (fits || self.is_empty);
            if !room && known.is_none() {
                break;
            }
            match known {
                Some(place) => self.objects[place].1 = read.max(slice.end),
                None => self.objects.push((slice.object, slice.end)),
            }
            self.take_bytes(cost.max(1));
            partition_left = partition_left.saturating_sub(u64::from(slice.len()));
            admitted.push(*slice);
        }
        admitted
    }
}

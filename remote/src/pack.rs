//! Chooses what goes into the next combined object. Pure.
//!
//! Path: ready ranges lent by the owner shards → queue → [`FrozenPlan`] → [`crate::frozen::FrozenObject`].
//! - Due when `upload_bytes` wait or the oldest range is `interval` old; the clock starts with the first byte, so an
//!   idle broker sends nothing. Frozen only when a PUT slot is free; until then the object grows (Rule: R26).
//! - Oldest first: a range leaves with the first object that has room, so its age is bounded by the PUTs before it.
//! - A range is never split, so neither is a batch. Adjacent ranges of one partition become one slice.
//! - Slices are ordered by follower set, then topic id and partition: what one follower broker wants lies together.
//!
//! Invariant: ranges of one partition leave in the order in which they were offered.
//! Cost: per range one queue entry and one map look-up, per batch a look at its header; records are not touched.

mod merge;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use sakia_protocol::ids::{BrokerId, LeaderEpoch, Offset, PartitionKey};
use smallvec::SmallVec;

use crate::batches;
use crate::limits::{OBJECT_BYTES_MAX, OBJECT_SLICES_MAX, QUEUE_BYTES_MAX, UPLOAD_BYTES};

/// Brokers that follow a partition, ascending.
pub type BrokerSet = SmallVec<[BrokerId; 2]>;

/// Bytes of one partition at one leader epoch, lent by its owner shard.
#[derive(Clone, Debug)]
pub struct ReadyRange {
    /// Whose.
    pub key: PartitionKey,
    /// Leader epoch of every batch in it.
    pub leader_epoch: LeaderEpoch,
    /// Generation of the partition on its shard (Rule: R7).
    pub generation: u64,
    /// First offset.
    pub base: Offset,
    /// Offset after the last.
    pub next: Offset,
    /// Largest record timestamp, -1 if unknown.
    pub max_timestamp_ms: i64,
    /// CRC-32C of `bytes`.
    pub crc32c: u32,
    /// Log start of the partition.
    pub log_start: Offset,
    /// Whole batches.
    pub bytes: Bytes,
    /// Who will want them.
    pub followers: BrokerSet,
    /// Which shard lent them.
    pub shard: usize,
    /// When the packer took it, on the packer's clock: stamped by [`Packer::offer`], so that clocks of shards need
    /// not agree.
    pub offered_at: Duration,
}

/// The packer's settings.
#[derive(Clone, Copy, Debug)]
pub struct PackSettings {
    /// Due at this many bytes.
    pub upload_bytes: usize,
    /// Due at this age.
    pub interval: Duration,
    /// An object does not grow beyond it, except for one single longer range.
    pub object_bytes_max: usize,
    /// The queue does not grow beyond it, except for one single longer range.
    pub queue_bytes_max: usize,
}

impl Default for PackSettings {
    fn default() -> Self {
        Self {
            upload_bytes: UPLOAD_BYTES,
            interval: Duration::from_millis(10),
            object_bytes_max: OBJECT_BYTES_MAX,
            queue_bytes_max: QUEUE_BYTES_MAX,
        }
    }
}

/// What became of an offer.
#[derive(Debug)]
#[must_use = "a range given back must be returned to its shard"]
pub enum Offered {
    /// It waits in the queue.
    Taken,
    /// The queue is full: the range goes back, its followers get bytes.
    Full(ReadyRange),
}

/// What made an object due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreezeCause {
    /// Enough bytes.
    Bytes,
    /// Its oldest byte is old enough.
    Age,
}

/// One slice of an object to be.
#[derive(Clone, Debug)]
pub struct PlannedSlice {
    /// Whose.
    pub key: PartitionKey,
    /// Leader epoch of every batch in it.
    pub leader_epoch: LeaderEpoch,
    /// Generation of the partition on its shard (Rule: R7).
    pub generation: u64,
    /// First offset.
    pub base: Offset,
    /// Offset after the last.
    pub next: Offset,
    /// Largest record timestamp, -1 if unknown.
    pub max_timestamp_ms: i64,
    /// CRC-32C over all parts.
    pub crc32c: u32,
    /// Log start of the partition.
    pub log_start: Offset,
    /// Lent bytes in order; not joined.
    pub parts: SmallVec<[Bytes; 1]>,
    /// Their length.
    pub length: u64,
    /// Who will want them.
    pub followers: BrokerSet,
    /// Which shard lent them.
    pub shard: usize,
}

/// An object to be: slices in the order of their bytes.
#[derive(Debug)]
pub struct FrozenPlan {
    /// At least one.
    pub slices: Vec<PlannedSlice>,
    /// Record bytes of all of them.
    pub bytes: u64,
    /// When the oldest of them was offered.
    pub oldest_at: Duration,
    /// Why now.
    pub cause: FreezeCause,
}

/// The queue of ready ranges of one broker.
#[derive(Debug)]
pub struct Packer {
    settings: PackSettings,
    queue: VecDeque<ReadyRange>,
    queued_bytes: usize,
    latest: Duration,
}

impl Packer {
    /// An empty queue.
    #[must_use]
    pub fn new(settings: PackSettings) -> Self {
        assert!(settings.upload_bytes > 0, "an object has bytes");
        assert!(settings.upload_bytes <= settings.object_bytes_max, "an object that is due fits the object");
        assert!(settings.object_bytes_max <= settings.queue_bytes_max, "the queue holds a whole object");
        Self { settings, queue: VecDeque::new(), queued_bytes: 0, latest: Duration::ZERO }
    }

    /// Takes a range, unless the queue is full. Panics unless its batches fit its offsets and epoch (Rule: R5).
    pub fn offer(&mut self, mut range: ReadyRange, now: Duration) -> Offered {
        assert!(range.base < range.next, "a ready range has offsets");
        assert!(!range.bytes.is_empty(), "a ready range has bytes");
        debug_assert_eq!(crc32c::crc32c(&range.bytes), range.crc32c, "a ready range carries its own checksum");
        let batches = batches::check(&range.bytes, range.base, range.next, range.leader_epoch);
        assert_eq!(batches, Ok(()), "ready range {}..{} of {}", range.base, range.next, range.key);
        let after = self.queued_bytes + range.bytes.len();
        if after > self.settings.queue_bytes_max && !self.queue.is_empty() {
            return Offered::Full(range);
        }
        self.latest = self.latest.max(now);
        range.offered_at = self.latest;
        range.followers.sort_unstable();
        self.queued_bytes = after;
        self.queue.push_back(range);
        Offered::Taken
    }

    /// How long until an object is due: zero if it is, `None` if nothing waits.
    #[must_use]
    pub fn due(&self, now: Duration) -> Option<Duration> {
        let oldest = self.queue.front()?;
        if self.queued_bytes >= self.settings.upload_bytes {
            return Some(Duration::ZERO);
        }
        Some((oldest.offered_at + self.settings.interval).saturating_sub(now))
    }

    /// Takes the next object out of the queue if one is due and a PUT slot is free.
    pub fn freeze(&mut self, now: Duration, slots_free: usize) -> Option<FrozenPlan> {
        if slots_free == 0 || self.due(now)? > Duration::ZERO {
            return None;
        }
        let cause = if self.queued_bytes >= self.settings.upload_bytes { FreezeCause::Bytes } else { FreezeCause::Age };
        let oldest_at = self.queue.front()?.offered_at;
        let ranges = self.take_oldest();
        let bytes = ranges.iter().map(|range| range.bytes.len()).sum::<usize>();
        let slices = merge::slices(ranges);
        let bytes = u64::try_from(bytes).expect("usize fits u64");
        assert_eq!(slices.iter().map(|slice| slice.length).sum::<u64>(), bytes, "no byte is lost by merging");
        Some(FrozenPlan { slices, bytes, oldest_at, cause })
    }

    /// The longest run of oldest ranges that fits an object; at least one.
    fn take_oldest(&mut self) -> Vec<ReadyRange> {
        let mut bytes = 0;
        let fitting = self.queue.iter().take(OBJECT_SLICES_MAX).take_while(|range| {
            bytes += range.bytes.len();
            bytes <= self.settings.object_bytes_max
        });
        let count = fitting.count().max(1);
        let ranges: Vec<_> = self.queue.drain(..count).collect();
        self.queued_bytes -= ranges.iter().map(|range| range.bytes.len()).sum::<usize>();
        ranges
    }

    /// Takes ranges offered at or before `limit` out of the queue: they waited too long and their followers get bytes.
    pub fn take_expired(&mut self, limit: Duration) -> Vec<ReadyRange> {
        let count = self.queue.iter().take_while(|range| range.offered_at <= limit).count();
        let expired: Vec<_> = self.queue.drain(..count).collect();
        self.queued_bytes -= expired.iter().map(|range| range.bytes.len()).sum::<usize>();
        expired
    }

    /// Changes the age at which an object is due (cost ceiling).
    pub fn widen(&mut self, interval: Duration) {
        self.settings.interval = interval;
    }

    /// Bytes that wait.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// When the oldest waiting range was offered.
    #[must_use]
    pub fn oldest_at(&self) -> Option<Duration> {
        self.queue.front().map(|range| range.offered_at)
    }
}

#[cfg(test)]
mod tests;

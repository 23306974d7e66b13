//! Which objects hold which offsets: the index from which a leader hands out references, for all partitions of one shard.
//!
//! Pure. Path: finished PUT (leader) or applied slice (follower) → [`WalIndex::insert`] → [`WalIndex::references_from`].
//! Rule: R8. A slice stands here only if the log of this replica holds its whole range at that one epoch, at or above its
//! local log start; so it may be handed out without another test. Truncation cuts it.
//! Invariant: slices of one partition do not overlap; a gap between two stays visible as a gap. A slice that was
//! published before its predecessor is found only from its own offsets on, so nobody steps over the predecessor.
//! Cost: a slice is about 150 bytes; at the byte budget the oldest slice of the shard is forgotten, whatever its
//! partition, so a busy partition cannot be starved by idle ones.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sakia_protocol::ids::{LeaderEpoch, Offset, PartitionKey};
use sakia_remote::ObjectReference;

use crate::log::epochs::EpochCache;

/// One partition's part of one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexedSlice {
    /// The object.
    pub object: ObjectReference,
    /// Number of the slice in the manifest.
    pub slice: u32,
    /// Position of its first byte in the object.
    pub start: u32,
    /// Position after its last byte: what a GET must reach.
    pub end: u32,
    /// First offset.
    pub base: Offset,
    /// Offset after its last record.
    pub next: Offset,
    /// Epoch of all its batches.
    pub leader_epoch: LeaderEpoch,
}

impl IndexedSlice {
    /// Its length in the object.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.end - self.start
    }

    /// Never: a slice holds at least one batch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end == self.start
    }
}

/// What a replica's log holds, as far as R8 asks.
#[derive(Clone, Copy, Debug)]
pub struct HeldLog<'a> {
    /// First offset on the local disk.
    pub local_start: Offset,
    /// Offset after the last appended record (R1 allows it here).
    pub appended: Offset,
    /// Which epoch wrote what.
    pub epochs: &'a EpochCache,
}

impl HeldLog<'_> {
    /// Whether it holds all of `base..next` at exactly this epoch.
    #[must_use]
    pub fn holds(&self, base: Offset, next: Offset, epoch: LeaderEpoch) -> bool {
        base >= self.local_start
            && base < next
            && next <= self.appended
            && self.epochs.epoch_at(base) == Some(epoch)
            && self.epochs.end_of(epoch, self.appended).is_some_and(|(found, end)| found == epoch && next <= end)
    }
}

/// Why a slice was taken into the index or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Indexed {
    /// It is found from now on.
    Taken,
    /// The partition is not open here, or has another generation by now (Rule: R7).
    Stale,
    /// The log does not hold it at that epoch (Rule: R8).
    NotHeld,
    /// Some of it is known already, from another object.
    Known,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    slice: IndexedSlice,
    stamp: u64,
}

#[derive(Default, Debug)]
struct Ring {
    generation: u64,
    /// By base, ascending.
    slices: VecDeque<Entry>,
}

/// One slice in the order of arrival. Those that were cut meanwhile stay in this line until it is their turn.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    key: PartitionKey,
    base: Offset,
    stamp: u64,
    at: Duration,
}

const SLICE_BYTES: usize = size_of::<Entry>() + size_of::<Arrival>();

/// The index of one shard.
#[derive(Debug)]
pub struct WalIndex {
    slices_max: usize,
    rings: BTreeMap<PartitionKey, Ring>,
    arrivals: VecDeque<Arrival>,
    stamp: u64,
}

impl WalIndex {
    /// An empty index: after a restart followers get bytes. `bytes_max` is this shard's share of
    /// [`super::limits::WAL_INDEX_BYTES`].
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        let slices_max = (bytes_max / SLICE_BYTES).max(1);
        Self { slices_max, rings: BTreeMap::new(), arrivals: VecDeque::new(), stamp: 0 }
    }

    /// The partition is here with this generation; what is known of it stays (a new leader hands out what it read as a
    /// follower; whatever its log lost was cut).
    pub fn open(&mut self, key: PartitionKey, generation: u64) {
        let ring = self.rings.entry(key).or_default();
        assert!(generation >= ring.generation, "generations of {key} do not go back");
        ring.generation = generation;
    }

    /// The partition is gone from this shard.
    pub fn close(&mut self, key: PartitionKey) {
        self.rings.remove(&key);
    }

    /// Takes a slice that stands in the bucket.
    pub fn insert(
        &mut self,
        key: PartitionKey,
        generation: u64,
        slice: IndexedSlice,
        log: HeldLog<'_>,
        now: Duration,
    ) -> Indexed {
        assert!(slice.start < slice.end && slice.end <= slice.object.object_length, "a slice lies inside its object");
        let Some(ring) = self.rings.get_mut(&key).filter(|ring| ring.generation == generation) else {
            return Indexed::Stale;
        };
        if !log.holds(slice.base, slice.next, slice.leader_epoch) {
            return Indexed::NotHeld;
        }
        let place = ring.slices.partition_point(|entry| entry.slice.base < slice.base);
        let before = place.checked_sub(1).map(|before| ring.slices[before].slice);
        let after = ring.slices.get(place).map(|after| after.slice);
        let overlaps = |known: &IndexedSlice| known.base < slice.next && slice.base < known.next;
        if let Some(known) = before.filter(overlaps).or(after.filter(overlaps)) {
            assert_eq!(
                known.leader_epoch, slice.leader_epoch,
                "a slice {}..{} in the index was left behind by a truncation: the log holds {}..{}",
                known.base, known.next, slice.base, slice.next
            );
            return Indexed::Known;
        }
        self.stamp += 1;
        ring.slices.insert(place, Entry { slice, stamp: self.stamp });
        self.arrivals.push_back(Arrival { key, base: slice.base, stamp: self.stamp, at: now });
        if self.arrivals.len() > self.slices_max {
            self.forget_oldest();
        }
        Indexed::Taken
    }

    fn forget_oldest(&mut self) {
        let Some(oldest) = self.arrivals.pop_front() else { return };
        let Some(ring) = self.rings.get_mut(&oldest.key) else { return };
        let place = ring.slices.partition_point(|entry| entry.slice.base < oldest.base);
        if ring.slices.get(place).is_some_and(|entry| entry.stamp == oldest.stamp) {
            ring.slices.remove(place);
        }
    }

    /// Forgets slices that arrived before `before`: their objects may be deleted by age (Rule: R22).
    pub fn expire(&mut self, before: Duration) {
        while self.arrivals.front().is_some_and(|oldest| oldest.at < before) {
            self.forget_oldest();
        }
    }

    /// The log of `key` was truncated to `end`: every slice that reaches over it is gone.
    pub fn cut_end(&mut self, key: PartitionKey, end: Offset) {
        if let Some(ring) = self.rings.get_mut(&key) {
            while ring.slices.back().is_some_and(|last| last.slice.next > end) {
                ring.slices.pop_back();
            }
        }
    }

    /// The local log of `key` now starts at `start`: every slice that begins below is gone.
    pub fn cut_start(&mut self, key: PartitionKey, start: Offset) {
        if let Some(ring) = self.rings.get_mut(&key) {
            while ring.slices.front().is_some_and(|first| first.slice.base < start) {
                ring.slices.pop_front();
            }
        }
    }

    /// The slice that holds `from`, and those that follow it without a gap (Rule: R9, base ≤ asked offset < next).
    pub fn references_from(&self, key: PartitionKey, from: Offset) -> impl Iterator<Item = &IndexedSlice> {
        let slices = self.rings.get(&key).map(|ring| &ring.slices);
        let first = slices.map_or(0, |slices| slices.partition_point(|entry| entry.slice.next <= from));
        let mut expected = None;
        slices.into_iter().flat_map(move |slices| slices.range(first..)).map(|entry| &entry.slice).take_while(
            move |slice| {
                let fits = expected.map_or(slice.base <= from, |expected| slice.base == expected);
                expected = Some(slice.next);
                fits
            },
        )
    }

    /// First offset at or above `from` that some slice holds: bytes need to be read only up to there.
    #[must_use]
    pub fn next_held(&self, key: PartitionKey, from: Offset) -> Option<Offset> {
        let slices = &self.rings.get(&key)?.slices;
        let place = slices.partition_point(|entry| entry.slice.next <= from);
        slices.get(place).map(|entry| entry.slice.base.max(from))
    }

    /// Bytes that the index takes, as counted against its budget.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.arrivals.len() * SLICE_BYTES
    }
}

//! Turns ranges into slices: joins neighbours, orders by follower set. Pure.
//!
//! Invariant: slices of one partition keep the order in which their ranges came.

use std::collections::BTreeMap;

use bytes::Bytes;
use sakia_protocol::batch::crc;
use sakia_protocol::ids::PartitionKey;
use smallvec::smallvec;

use super::{BrokerSet, PlannedSlice, ReadyRange};

/// Slices of one object, in the order of their bytes.
pub(super) fn slices(ranges: Vec<ReadyRange>) -> Vec<PlannedSlice> {
    let mut partitions: BTreeMap<PartitionKey, Vec<PlannedSlice>> = BTreeMap::new();
    for range in ranges {
        let slices = partitions.entry(range.key).or_default();
        match slices.last_mut() {
            Some(last) if continues(last, &range) => append(last, range),
            _ => slices.push(slice(range)),
        }
    }
    // The newest follower set of a partition places all its slices; partitions nobody follows come last.
    let mut order: Vec<_> = partitions
        .into_iter()
        .map(|(key, slices)| {
            let followers = slices.last().map(|slice| slice.followers.clone()).unwrap_or_default();
            ((followers.is_empty(), followers, key), slices)
        })
        .collect();
    order.sort_by(|(a, _): &((bool, BrokerSet, PartitionKey), _), (b, _)| a.cmp(b));
    order.into_iter().flat_map(|(_, slices)| slices).collect()
}

fn continues(last: &PlannedSlice, range: &ReadyRange) -> bool {
    last.next == range.base
        && last.leader_epoch == range.leader_epoch
        && last.generation == range.generation
        && last.shard == range.shard
}

fn append(last: &mut PlannedSlice, range: ReadyRange) {
    assert_eq!(last.key, range.key, "a slice belongs to one partition");
    last.crc32c = crc::combine(last.crc32c, range.crc32c, range.bytes.len());
    last.next = range.next;
    last.max_timestamp_ms = last.max_timestamp_ms.max(range.max_timestamp_ms);
    last.log_start = last.log_start.max(range.log_start);
    last.length += length(&range.bytes);
    last.followers = range.followers;
    last.parts.push(range.bytes);
}

fn slice(range: ReadyRange) -> PlannedSlice {
    PlannedSlice {
        key: range.key,
        leader_epoch: range.leader_epoch,
        generation: range.generation,
        base: range.base,
        next: range.next,
        max_timestamp_ms: range.max_timestamp_ms,
        crc32c: range.crc32c,
        log_start: range.log_start,
        length: length(&range.bytes),
        parts: smallvec![range.bytes],
        followers: range.followers,
        shard: range.shard,
    }
}

fn length(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).expect("usize fits u64")
}

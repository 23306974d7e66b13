//! Claims about replication as a whole, against models that are too simple to be wrong.

mod caught_up;
mod followed;
mod index;
mod lineage;
mod plans;
mod watermark;

use std::time::Duration;

use sakia_protocol::ids::{
    BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch, PartitionIndex, PartitionKey, Uuid,
};
use sakia_remote::ObjectReference;

use super::fetch_plan::{CheckedFetch, LeaderLog, ReplicaFetch, Wants, check_fetch};
use super::leader::{LeaderState, Leadership};
use super::progress::SessionStamp;
use super::wal_index::IndexedSlice;
use crate::log::epochs::EpochCache;

const LAG_MAX: Duration = Duration::from_secs(30);
const EPOCH: LeaderEpoch = LeaderEpoch::new(3);
const ME: BrokerId = BrokerId::new(1);
const OTHER: BrokerId = BrokerId::new(2);
const THIRD: BrokerId = BrokerId::new(3);

fn at(offset: i64) -> Offset {
    Offset::new(offset)
}

fn ms(value: u64) -> Duration {
    Duration::from_millis(value)
}

fn key() -> PartitionKey {
    PartitionKey { topic_id: Uuid::from_bytes([7; 16]), partition: PartitionIndex::ZERO }
}

fn registration(broker: BrokerId) -> BrokerEpoch {
    BrokerEpoch::new(100 + i64::from(broker.get()))
}

/// Epochs of a log that epoch 3 wrote from 0 on.
fn one_epoch() -> EpochCache {
    epochs(&[(3, 0)])
}

fn epochs(entries: &[(i32, i64)]) -> EpochCache {
    let mut cache = EpochCache::default();
    for (epoch, start) in entries {
        let _ = cache.assign(LeaderEpoch::new(*epoch), at(*start));
    }
    cache
}

/// Broker 1 leads epoch 3 from offset 0 on, with these followers, all alive and in the ISR.
fn leadership(followers: &[BrokerId], stored: i64) -> Leadership {
    let all: Vec<BrokerId> = std::iter::once(ME).chain(followers.iter().copied()).collect();
    Leadership {
        me: ME,
        my_epoch: registration(ME),
        leader_epoch: EPOCH,
        epoch_start: Offset::ZERO,
        partition_epoch: PartitionEpoch::new(10),
        generation: 1,
        replicas: all.clone(),
        isr: all.clone(),
        live: all.iter().map(|broker| (*broker, registration(*broker))).collect(),
        min_in_sync: 1,
        lag_max: LAG_MAX,
        high_watermark: Offset::ZERO,
        stored: at(stored),
    }
}

fn fetch(broker: BrokerId, session: (u64, u64), end: i64) -> ReplicaFetch {
    ReplicaFetch {
        broker,
        broker_epoch: Some(registration(broker)),
        stamp: SessionStamp { session: session.0, epoch: session.1 },
        leader_epoch: Some(EPOCH),
        end: at(end),
        last_epoch: (end > 0).then_some(EPOCH),
        log_start: Some(Offset::ZERO),
        wants: Wants::References,
        bytes_until: None,
    }
}

fn checked(fetch: ReplicaFetch, leader: &LeaderState, appended: i64) -> CheckedFetch {
    let epochs = one_epoch();
    let log = LeaderLog { start: Offset::ZERO, appended: at(appended), epochs: &epochs };
    check_fetch(fetch, leader, log).expect("it fits the log")
}

fn object(sequence: u64) -> ObjectReference {
    ObjectReference {
        bucket: 0,
        broker: ME,
        broker_epoch: registration(ME),
        sequence,
        object_length: 100_000,
        manifest_length: 141,
        manifest_crc32c: 0,
    }
}

/// Slice 0 of an object: 10 bytes per record, from byte 200 on.
fn slice(sequence: u64, base: i64, next: i64) -> IndexedSlice {
    let len = u32::try_from(next - base).expect("a short slice") * 10;
    IndexedSlice {
        object: object(sequence),
        slice: 0,
        start: 200,
        end: 200 + len,
        base: at(base),
        next: at(next),
        leader_epoch: EPOCH,
    }
}

/// A small generator of seeded numbers; printed seeds replay a run.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 11) % u64::try_from(sides).expect("few sides")).expect("below sides")
    }
}

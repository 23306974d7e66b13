//! Ready ranges and objects for the tests of this crate.

use std::time::Duration;

use bytes::Bytes;
use sakia_protocol::ids::{
    BrokerEpoch, BrokerId, LeaderEpoch, MetadataIndex, Offset, PartitionIndex, PartitionKey, Uuid,
};

use crate::batches::tests::batch;
use crate::frozen::{FrozenObject, Identity};
use crate::key::{KeySpace, StreamId};
use crate::pack::{FreezeCause, FrozenPlan, PackSettings, Packer, ReadyRange};

pub(crate) fn key(topic: u8, partition: i32) -> PartitionKey {
    PartitionKey { topic_id: Uuid::from_bytes([topic; 16]), partition: PartitionIndex::new(partition) }
}

/// One batch `base..next` at epoch 4 with `body` bytes behind its header, followed by broker 2.
pub(crate) fn range(key: PartitionKey, offsets: std::ops::Range<i64>, body: usize) -> ReadyRange {
    let records = i32::try_from(offsets.end - offsets.start).unwrap();
    let bytes = Bytes::from(batch(offsets.start, records, 4, body));
    ReadyRange {
        key,
        leader_epoch: LeaderEpoch::new(4),
        generation: 1,
        base: Offset::new(offsets.start),
        next: Offset::new(offsets.end),
        max_timestamp_ms: offsets.end,
        crc32c: crc32c::crc32c(&bytes),
        log_start: Offset::ZERO,
        bytes,
        followers: [BrokerId::new(2)].into_iter().collect(),
        shard: 0,
        offered_at: Duration::ZERO,
    }
}

pub(crate) fn followed_by(mut range: ReadyRange, brokers: &[i32]) -> ReadyRange {
    range.followers = brokers.iter().map(|broker| BrokerId::new(*broker)).collect();
    range
}

pub(crate) fn stream() -> StreamId {
    StreamId { broker: BrokerId::new(1), broker_epoch: BrokerEpoch::new(77) }
}

pub(crate) fn space() -> KeySpace {
    KeySpace::new("prefix", "incarnation")
}

pub(crate) fn identity(sequence: u64) -> Identity {
    let id = u8::try_from(sequence % 256).unwrap();
    Identity {
        object_id: Uuid::from_bytes([id; 16]),
        bucket: 0,
        stream: stream(),
        sequence,
        created_at_ms: 1_700_000_000_000,
        metadata_index: MetadataIndex::new(9),
    }
}

pub(crate) fn plan(ranges: Vec<ReadyRange>) -> FrozenPlan {
    let mut packer = Packer::new(PackSettings::default());
    for range in ranges {
        assert!(matches!(packer.offer(range, Duration::ZERO), crate::pack::Offered::Taken));
    }
    let plan = packer.freeze(Duration::from_secs(1), 1).expect("due");
    assert_eq!(plan.cause, FreezeCause::Age);
    plan
}

pub(crate) fn object(sequence: u64, ranges: Vec<ReadyRange>) -> FrozenObject {
    FrozenObject::new(&space(), identity(sequence), plan(ranges))
}

/// All bytes of an object as the bucket would hold them.
pub(crate) fn joined(object: &FrozenObject) -> Bytes {
    object.put().parts.concat().into()
}

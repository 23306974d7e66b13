//! A combined object of 100 slices: pack and freeze, head read in place, planning its one GET.

use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use sakia_benches::{Per, time};
use sakia_protocol::batch::{BatchBuilder, Compression, NewRecord, StampedTime, crc};
use sakia_protocol::ids::{
    BrokerEpoch, BrokerId, LeaderEpoch, MetadataIndex, Offset, PartitionIndex, PartitionKey, Uuid,
};
use sakia_remote::frozen::{FrozenObject, Identity};
use sakia_remote::key::{KeySpace, StreamId};
use sakia_remote::object::read_head;
use sakia_remote::pack::{Offered, PackSettings, Packer, ReadyRange};

const SLICES: i32 = 100;
/// Ranges of one busy partition that become one slice: its batches, as they came.
const NEIGHBOURS: i64 = 32;

fn main() {
    let ranges: Vec<ReadyRange> = (0..SLICES).map(|number| range(number, 0, 5 << 10)).collect();
    let bytes: usize = ranges.iter().map(|range| range.bytes.len()).sum();
    let space = KeySpace::new("bench", "incarnation");
    time("pack and freeze, 100 slices of 5 KiB", Per::Things(ranges.len()), || {
        black_box(freeze(&space, &ranges));
    });
    let object = freeze(&space, &ranges);
    assert_eq!(object.slices().len(), ranges.len(), "every range is a slice");
    assert!(usize::try_from(object.reference().object_length).expect("u32 fits usize") > bytes, "with a head");
    time("one attempt's request, 100 parts", Per::Step, || {
        black_box(object.put());
    });
    let neighbours: Vec<ReadyRange> = (0..NEIGHBOURS).map(|number| range(0, number, 16 << 10)).collect();
    time("pack and freeze, 32 ranges of 16 KiB, one partition", Per::Things(neighbours.len()), || {
        black_box(freeze(&space, &neighbours));
    });
    assert_eq!(freeze(&space, &neighbours).slices().len(), 1, "neighbours are joined");
    let head = object.head().clone();
    println!("{:<52} {:>12} B", "head of 100 slices", head.len());
    time("head: checks", Per::Step, || {
        black_box(read_head(black_box(&head))).expect("it is good");
    });
    time("head: checks and every slice, in place", Per::Things(ranges.len()), || {
        let view = read_head(black_box(&head)).expect("it is good");
        black_box(view.slices().map(|slice| slice.end - slice.start).sum::<u64>());
    });
}

fn freeze(space: &KeySpace, ranges: &[ReadyRange]) -> FrozenObject {
    let mut packer = Packer::new(PackSettings::default());
    for range in ranges {
        assert!(matches!(packer.offer(range.clone(), Duration::ZERO), Offered::Taken), "the queue has room");
    }
    let plan = packer.freeze(Duration::from_secs(1), 1).expect("it is due");
    let identity = Identity {
        object_id: Uuid::from_bytes([9; 16]),
        bucket: 0,
        stream: StreamId { broker: BrokerId::new(1), broker_epoch: BrokerEpoch::new(7) },
        sequence: 1,
        created_at_ms: 1_000_000,
        metadata_index: MetadataIndex::new(5),
    };
    FrozenObject::new(space, identity, plan)
}

/// One batch of one record.
fn range(partition: i32, base: i64, value_bytes: usize) -> ReadyRange {
    let value = vec![7; value_bytes];
    let mut batch = BatchBuilder::new(Compression::None);
    batch.push(NewRecord { timestamp_ms: 1_000_000, value: Some(&value), ..Default::default() });
    let batch = batch.build();
    let (base, leader_epoch) = (Offset::new(base), LeaderEpoch::new(1));
    let bytes: Bytes = batch.place(base, leader_epoch, StampedTime::FromRecords).to_bytes();
    ReadyRange {
        key: PartitionKey { topic_id: Uuid::from_bytes([7; 16]), partition: PartitionIndex::new(partition) },
        leader_epoch,
        generation: 1,
        base,
        next: base.advance(batch.offsets()),
        max_timestamp_ms: 1_000_000,
        crc32c: crc::crc32c(&bytes),
        log_start: Offset::ZERO,
        bytes,
        followers: [BrokerId::new(2)].into_iter().collect(),
        shard: 0,
        offered_at: Duration::ZERO,
    }
}

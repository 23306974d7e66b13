//! The whole remote path against a model that is one vector of batches per partition.
//!
//! Random load and random PUT slots go through packer, frozen objects, references and opening. Whatever the order,
//! each follower gets every range of its partitions once, in order, with its bytes. A failing seed is printed.

#![expect(clippy::unwrap_used, reason = "a test: every conversion is of a small number")]

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use sakia_io::sim::Random;
use sakia_protocol::ids::{
    BrokerEpoch, BrokerId, LeaderEpoch, MetadataIndex, Offset, PartitionIndex, PartitionKey, Uuid,
};
use sakia_remote::FrozenObject;
use sakia_remote::ReferencedObject;
use sakia_remote::frozen::Identity;
use sakia_remote::get::open_object;
use sakia_remote::key::{KeySpace, StreamId};
use sakia_remote::pack::{Offered, PackSettings, Packer, ReadyRange};
use sakia_remote::wal_tag::{ReplyMode, WalResponse};

const SEEDS: u64 = 200;
const PARTITIONS: usize = 12;
const FOLLOWERS: [&[i32]; 4] = [&[2], &[3], &[2, 3], &[]];

struct Partition {
    key: PartitionKey,
    followers: &'static [i32],
    end: i64,
    written: Vec<u8>,
}

#[test]
fn each_follower_gets_every_byte_of_its_partitions_once_and_in_order() {
    for seed in 0..SEEDS {
        let result = std::panic::catch_unwind(|| run(seed));
        assert!(result.is_ok(), "seed {seed}");
    }
}

fn run(seed: u64) {
    let mut random = Random::seeded(seed);
    let settings = PackSettings {
        upload_bytes: 2000,
        interval: Duration::from_millis(10),
        object_bytes_max: 6000,
        queue_bytes_max: 20_000,
    };
    let mut packer = Packer::new(settings);
    let mut partitions: Vec<_> = (0..PARTITIONS).map(partition).collect();
    let mut objects = Vec::new();
    let mut now = Duration::ZERO;
    for _ in 0..300 {
        now += Duration::from_micros(random.below(3000));
        let partition = random.index(PARTITIONS);
        let range = next_range(&partitions[partition], &mut random);
        let (next, bytes) = (range.next.get(), range.bytes.clone());
        // A range that finds no room goes to the followers as bytes; here it is offered again later.
        if matches!(packer.offer(range, now), Offered::Taken) {
            partitions[partition].end = next;
            partitions[partition].written.extend_from_slice(&bytes);
        }
        let slots = usize::try_from(random.below(3)).unwrap().saturating_sub(1);
        freeze(&mut packer, now, slots, &mut objects);
    }
    now += Duration::from_secs(1);
    while packer.queued_bytes() > 0 {
        freeze(&mut packer, now, 1, &mut objects);
    }
    for broker in [2, 3] {
        check_follower(broker, &objects, &partitions);
    }
}

fn partition(number: usize) -> Partition {
    let topic = u8::try_from(number % 3).unwrap();
    let key = PartitionKey {
        topic_id: Uuid::from_bytes([topic + 1; 16]),
        partition: PartitionIndex::new(i32::try_from(number).unwrap()),
    };
    Partition { key, followers: FOLLOWERS[number % FOLLOWERS.len()], end: 0, written: Vec::new() }
}

fn next_range(partition: &Partition, random: &mut Random) -> ReadyRange {
    let mut bytes = Vec::new();
    let mut next = partition.end;
    for _ in 0..=random.below(3) {
        let records = i64::try_from(1 + random.below(5)).unwrap();
        bytes.extend(batch(next, records, random));
        next += records;
    }
    ReadyRange {
        key: partition.key,
        leader_epoch: LeaderEpoch::new(4),
        generation: 1,
        base: Offset::new(partition.end),
        next: Offset::new(next),
        max_timestamp_ms: next,
        crc32c: crc32c::crc32c(&bytes),
        log_start: Offset::ZERO,
        bytes: bytes.into(),
        followers: partition.followers.iter().map(|broker| BrokerId::new(*broker)).collect(),
        shard: 0,
        offered_at: Duration::ZERO,
    }
}

/// Header fields that place a batch, and random bytes for the rest.
fn batch(base: i64, records: i64, random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![0; 61 + random.index(300)];
    random.fill(&mut bytes[61..]);
    let length = i32::try_from(bytes.len() - 12).unwrap();
    bytes[0..8].copy_from_slice(&base.to_be_bytes());
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[12..16].copy_from_slice(&4i32.to_be_bytes());
    bytes[16] = 2;
    bytes[23..27].copy_from_slice(&i32::try_from(records - 1).unwrap().to_be_bytes());
    bytes
}

fn freeze(packer: &mut Packer, now: Duration, slots: usize, objects: &mut Vec<FrozenObject>) {
    let Some(plan) = packer.freeze(now, slots) else { return };
    let sequence = u64::try_from(objects.len()).unwrap();
    let identity = Identity {
        object_id: Uuid::from_bytes(u128::from(sequence).to_be_bytes()),
        bucket: 0,
        stream: StreamId { broker: BrokerId::new(1), broker_epoch: BrokerEpoch::new(8) },
        sequence,
        created_at_ms: 0,
        metadata_index: MetadataIndex::ZERO,
    };
    objects.push(FrozenObject::new(&KeySpace::new("p", "i"), identity, plan));
}

fn check_follower(broker: i32, objects: &[FrozenObject], partitions: &[Partition]) {
    let mut got: BTreeMap<PartitionKey, (Offset, Vec<u8>)> = BTreeMap::new();
    for object in objects {
        let Some(get_end) = object.get_end(BrokerId::new(broker)) else { continue };
        let named = ReferencedObject { object: object.reference(), get_end, excluded: Vec::new() };
        // As it travels in a fetch reply.
        let reply = WalResponse { mode: ReplyMode::References, objects: vec![named] };
        let named = WalResponse::decode(&reply.encode()).expect("valid").objects.remove(0);
        let stored = Bytes::from(object.put().parts.concat());
        let fetched = stored.slice(..usize::try_from(named.get_end).unwrap());
        for slice in open_object(&named, &fetched).expect("valid") {
            // What others follow lies between and may be seen in part.
            let wanted = partitions.iter().find(|partition| partition.key == slice.header.key).unwrap();
            if !wanted.followers.contains(&broker) {
                continue;
            }
            let (end, bytes) = got.entry(slice.header.key).or_insert((Offset::ZERO, Vec::new()));
            assert_eq!(slice.header.base, *end, "{} has neither gap nor overlap", slice.header.key);
            *end = slice.header.next;
            bytes.extend_from_slice(&slice.bytes);
        }
    }
    for partition in partitions.iter().filter(|partition| partition.followers.contains(&broker)) {
        let bytes = got.get(&partition.key).map(|(_, bytes)| bytes.as_slice()).unwrap_or_default();
        assert!(bytes == partition.written, "{} has its own bytes", partition.key);
    }
}

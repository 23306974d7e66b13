//! What a follower's fetch of 100 partitions costs in decisions: check, state, plan; with and without new references.

use std::hint::black_box;
use std::time::Duration;

use sakia_benches::{Per, time};
use sakia_engine::log::epochs::EpochCache;
use sakia_engine::replication::fetch_plan::{LeaderLog, Plan, ReplicaFetch, Situation, Wants, check_fetch, plan};
use sakia_engine::replication::wal_index::HeldLog;
use sakia_engine::replication::{
    IndexedSlice, LeaderState, Leadership, ReplyBudget, SessionStamp, UploadProgress, WalIndex,
};
use sakia_protocol::ids::{
    BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch, PartitionIndex, PartitionKey, Uuid,
};
use sakia_remote::ObjectReference;

const PARTITIONS: i32 = 100;
const ME: BrokerId = BrokerId::new(1);
const FOLLOWER: BrokerId = BrokerId::new(2);
const EPOCH: LeaderEpoch = LeaderEpoch::new(1);
const REGISTERED: BrokerEpoch = BrokerEpoch::new(100);
const FALLBACK: Duration = Duration::from_secs(1);
const NOW: Duration = Duration::from_secs(10);
/// Every partition holds so many records, in slices of `SLICE`; the last slice is new.
const STORED: i64 = 1000;
const SLICE: i64 = 10;

struct Led {
    key: PartitionKey,
    leader: LeaderState,
    upload: UploadProgress,
}

fn main() {
    let mut epochs = EpochCache::default();
    let _ = epochs.assign(EPOCH, Offset::ZERO);
    let mut index = WalIndex::new(64 << 20);
    let mut partitions: Vec<Led> = (0..PARTITIONS).map(|number| led(number, &mut index, &epochs)).collect();
    let mut request = 0;
    for (label, end) in [("nothing new", STORED), ("one new slice each", STORED - SLICE)] {
        time(&format!("fetch of 100 partitions, {label}"), Per::Things(partitions.len()), || {
            request += 1;
            let planned = answer(&mut partitions, &index, &epochs, request, Offset::new(end));
            assert_eq!(planned > 0, end < STORED, "references when something is new");
            black_box(planned);
        });
    }
}

/// Checks, takes and plans all partitions of one fetch; gives the number of references. Each is a new session, so that
/// what was handed out before is handed out again.
fn answer(partitions: &mut [Led], index: &WalIndex, epochs: &EpochCache, request: u64, end: Offset) -> usize {
    let mut budget = ReplyBudget::new(10 << 20);
    let mut references = 0;
    for led in partitions {
        let fetch = ReplicaFetch {
            broker: FOLLOWER,
            broker_epoch: Some(REGISTERED),
            stamp: SessionStamp { session: request, epoch: 1 },
            leader_epoch: Some(EPOCH),
            end,
            last_epoch: Some(EPOCH),
            log_start: Some(Offset::ZERO),
            wants: Wants::References,
            bytes_until: None,
        };
        let log = LeaderLog { start: Offset::ZERO, appended: Offset::new(STORED), epochs };
        let checked = check_fetch(fetch, &led.leader, log).expect("it fits the log");
        black_box(led.leader.on_follower_fetch(&checked, NOW));
        let situation = Situation {
            key: led.key,
            leader: &led.leader,
            upload: Some(&led.upload),
            index,
            bytes_max: 1 << 20,
            fallback_after: FALLBACK,
            now: NOW,
        };
        if let Plan::References(slices) = plan(&checked, situation, &mut budget) {
            references += slices.len();
        }
    }
    references
}

fn led(number: i32, index: &mut WalIndex, epochs: &EpochCache) -> Led {
    let key = PartitionKey { topic_id: Uuid::from_bytes([7; 16]), partition: PartitionIndex::new(number) };
    let leadership = Leadership {
        me: ME,
        my_epoch: REGISTERED,
        leader_epoch: EPOCH,
        epoch_start: Offset::ZERO,
        partition_epoch: PartitionEpoch::new(1),
        generation: 1,
        replicas: vec![ME, FOLLOWER],
        isr: vec![ME, FOLLOWER],
        live: vec![(ME, REGISTERED), (FOLLOWER, REGISTERED)],
        min_in_sync: 1,
        lag_max: Duration::from_secs(30),
        high_watermark: Offset::ZERO,
        stored: Offset::new(STORED),
    };
    let mut upload = UploadProgress::new(Offset::ZERO, FALLBACK);
    upload.lend(Offset::new(STORED), NOW);
    index.open(key, 1);
    let held = HeldLog { local_start: Offset::ZERO, appended: Offset::new(STORED), epochs };
    for (sequence, base) in (0..STORED).step_by(usize::try_from(SLICE).expect("small")).enumerate() {
        let slice = slice(u64::try_from(sequence).expect("small"), number, base);
        let _ = index.insert(key, 1, slice, held, NOW);
        upload.published(slice.base, slice.next);
    }
    Led { key, leader: LeaderState::new(leadership, Duration::ZERO), upload }
}

/// Slice of one partition in an object that holds one of every partition.
fn slice(sequence: u64, number: i32, base: i64) -> IndexedSlice {
    let slice = u32::try_from(number).expect("below 100");
    let start = 9_000 + slice * 1_000;
    let object = ObjectReference {
        bucket: 0,
        broker: ME,
        broker_epoch: REGISTERED,
        sequence,
        object_length: 109_000,
        manifest_length: 8_160,
        manifest_crc32c: 0,
    };
    let (base, next) = (Offset::new(base), Offset::new(base + SLICE));
    IndexedSlice { object, slice, start, end: start + 1_000, base, next, leader_epoch: EPOCH }
}

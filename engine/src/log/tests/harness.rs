//! What the tests of the log share: batches, one machine in a world, a log with its writer task.

use std::cell::RefCell;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use sakia_io::sim::{Machine, World};
use sakia_io::{Arena, Class, spawn};
use sakia_protocol::batch::{BatchBuilder, BatchProducer, CheckedBatch, Compression, NewRecord, StampedTime, headers};
use sakia_protocol::ids::{LeaderEpoch, Offset, PartitionIndex, PartitionKey, ProducerEpoch, ProducerId, Uuid};

use crate::log::segment::RollSettings;
use crate::log::{AtLeastOne, LastRun, Log, LogError, LogSettings, Opening};

pub(super) const LIMIT: Duration = Duration::from_secs(3600);
pub(super) const FOLDER: &str = "/data/orders-0";

pub(super) fn offset(value: i64) -> Offset {
    Offset::new(value)
}

pub(super) fn epoch(value: i32) -> LeaderEpoch {
    LeaderEpoch::new(value)
}

pub(super) fn key() -> PartitionKey {
    PartitionKey { topic_id: Uuid::from_bytes([7; 16]), partition: PartitionIndex::new(0) }
}

/// A batch of `records` records of `value_len` bytes each, one millisecond apart from `timestamp_ms` on.
pub(super) fn batch(records: i64, value_len: usize, timestamp_ms: i64) -> CheckedBatch {
    build(BatchBuilder::new(Compression::None), records, value_len, timestamp_ms)
}

pub(super) fn produced(id: i64, producer_epoch: i16, sequence: i32, records: i64) -> CheckedBatch {
    let producer = BatchProducer {
        id: ProducerId::new(id),
        epoch: ProducerEpoch::new(producer_epoch),
        base_sequence: Some(sequence),
    };
    build(BatchBuilder::new(Compression::None).producer(producer), records, 20, 1000 + i64::from(sequence))
}

fn build(mut builder: BatchBuilder, records: i64, value_len: usize, timestamp_ms: i64) -> CheckedBatch {
    for number in 0..records {
        let value: Vec<u8> =
            (0..value_len).map(|at| (timestamp_ms.to_le_bytes()[0]).wrapping_add(at.to_le_bytes()[0])).collect();
        builder.push(NewRecord { timestamp_ms: timestamp_ms + number, value: Some(&value), ..NewRecord::default() });
    }
    builder.build()
}

/// The batch as a follower gets it.
pub(super) fn replicated(batch: &CheckedBatch, base: Offset, leader_epoch: LeaderEpoch) -> Bytes {
    batch.place(base, leader_epoch, StampedTime::FromRecords).to_bytes()
}

/// Segments of 16 KiB, kept for ever.
pub(super) fn small_segments() -> LogSettings {
    let roll = RollSettings { bytes: 16 * 1024, age: Duration::from_hours(24 * 365) };
    LogSettings { roll, retention: crate::log::retention::RetentionSettings::default(), ..LogSettings::default() }
}

pub(super) fn crashed() -> Opening {
    Opening::default()
}

pub(super) fn closed() -> Opening {
    Opening { last_run: LastRun::Closed, ..Opening::default() }
}

pub(super) async fn open(settings: LogSettings, how: Opening) -> Log {
    open_in(Path::new(FOLDER), settings, how).await
}

/// Opens the log and starts its writer task.
pub(super) async fn open_in(folder: &Path, settings: LogSettings, how: Opening) -> Log {
    let log = Log::open(folder, "orders", key(), settings, Arena::new(64 << 20), how).await.unwrap();
    let writer = log.clone();
    spawn(Class::Foreground, async move {
        loop {
            match writer.write_next().await {
                Ok(_) => {}
                Err(LogError::Closed | LogError::Offline(_)) => break,
                Err(error) => panic!("a writer ends only with the log: {error}"),
            }
        }
    })
    .detach();
    log
}

/// Waits until everything appended is stored.
pub(super) async fn store(log: &Log) {
    while log.stored() < log.appended() {
        sakia_io::sleep(Duration::from_micros(50)).await;
    }
}

/// Appends as the leader of epoch 0 and waits until it is stored.
pub(super) async fn append(log: &Log, batch: &CheckedBatch) -> Offset {
    let appended = log.append_as_leader(batch, log.latest_epoch().unwrap_or(LeaderEpoch::ZERO), 0).unwrap();
    store(log).await;
    appended.base
}

/// Everything from the start to the stored end.
pub(super) async fn read_all(log: &Log) -> Vec<u8> {
    let mut all = Vec::new();
    let mut from = log.start();
    while from < log.stored() {
        let read = log.read(from, log.stored(), 5000, AtLeastOne::Yes).await.unwrap();
        assert!(!read.is_empty(), "something is at {from} below {}", log.stored());
        read.bytes.iter().for_each(|piece| all.extend_from_slice(piece));
        from = read.next;
    }
    all
}

/// (base, next, epoch) of each batch.
pub(super) fn outline(bytes: &[u8]) -> Vec<(i64, i64, i32)> {
    let mut walk = headers(bytes);
    let outline = walk
        .by_ref()
        .map(|batch| {
            let header = batch.header;
            (header.base_offset.get(), header.next_offset().get(), LeaderEpoch::to_wire(header.leader_epoch))
        })
        .collect();
    assert_eq!(walk.position(), bytes.len(), "only whole batches");
    outline
}

/// One machine in a world.
pub(super) struct Site {
    pub(super) world: World,
    pub(super) machine: Machine,
}

impl Site {
    pub(super) fn new(seed: u64) -> Self {
        let world = World::new(seed);
        let machine = world.machine("broker");
        let site = Self { world, machine };
        site.run(async {
            sakia_io::fs::create_dir_all(Path::new("/data")).await.unwrap();
            sakia_io::fs::sync_dir(Path::new("/")).await.unwrap();
        });
        site
    }

    /// Runs a future on the machine to its end.
    pub(super) fn run<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        self.world.block_on(&self.machine, LIMIT, future).unwrap()
    }

    pub(super) fn path(name: &str) -> PathBuf {
        Path::new(FOLDER).join(name)
    }

    /// Writes a file whole, from outside.
    pub(super) fn write_file(&self, name: &str, content: Vec<u8>) {
        let path = Self::path(name);
        self.run(async move { sakia_io::fs::replace_file(&path, content).await.unwrap() });
    }

    pub(super) fn remove_file(&self, name: &str) {
        let path = Self::path(name);
        self.run(async move { sakia_io::fs::remove_file(&path).await.unwrap() });
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.machine.disk().names(FOLDER).unwrap()
    }

    pub(super) fn content(&self, name: &str) -> Vec<u8> {
        self.machine.disk().content(Self::path(name)).unwrap()
    }
}

/// Shared between a future in the world and the test outside.
pub(super) type Shared<T> = Rc<RefCell<T>>;

pub(super) fn shared<T>(value: T) -> Shared<T> {
    Rc::new(RefCell::new(value))
}

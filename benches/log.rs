//! The log on io_uring with direct I/O: append into the tail, and until stored, alone and in groups.
//!
//! `SAKIA_BENCH_FOLDER` says on which disk (default: the build's target folder).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use sakia_benches::{Per, of, print};
use sakia_engine::log::segment::FileKind;
use sakia_engine::log::{Log, LogSettings, Opening};
use sakia_io::{Arena, ShardSpec, Spawner, Threads, fs};
use sakia_protocol::batch::{BatchBuilder, CheckedBatch, Compression, NewRecord};
use sakia_protocol::ids::{LeaderEpoch, Offset, PartitionIndex, PartitionKey, Uuid};

const SAMPLES: usize = 41;
const ARENA_BYTES: usize = 256 << 20;

fn main() {
    let folder = std::env::var_os("SAKIA_BENCH_FOLDER")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let folder = folder.join(format!("log-{}", std::process::id()));
    let spec = ShardSpec { name: "bench".to_owned(), cpu: None };
    let main = Box::new(move || -> std::pin::Pin<Box<dyn Future<Output = ()>>> { Box::pin(all(folder)) });
    Threads.start(spec, main).expect("a thread with a ring").join();
}

async fn all(folder: PathBuf) {
    fs::create_dir_all(&folder).await.expect("a folder to write in");
    for (label, value_bytes, records) in [("171 B", 100, 1), ("16 KiB", 2_030, 8), ("1 MiB", 2_030, 512)] {
        let batch = batch(value_bytes, records);
        for group in [1, 16] {
            let log = open(&folder.join(format!("{records}-{group}"))).await;
            group_of(&log, label, &batch, group).await;
            assert!(log.bytes() > 0 && FileKind::Log.path(log.folder(), Offset::ZERO).exists(), "it is on disk");
            log.close().await.expect("it closes");
        }
    }
    fs::remove_dir_all(&folder).await.expect("what was made can be taken away");
}

/// Appends `group` batches, then writes until all are stored; the time of one append, and of one append until stored.
async fn group_of(log: &Log, label: &str, batch: &CheckedBatch, group: usize) {
    let (mut appends, mut wholes) = (Vec::new(), Vec::new());
    for _ in 0..SAMPLES {
        let begin = Instant::now();
        for _ in 0..group {
            log.append_as_leader(batch, LeaderEpoch::new(1), 1_000_000).expect("it fits");
        }
        let appended = begin.elapsed();
        while log.stored() < log.appended() {
            log.write_next().await.expect("the disk takes it");
        }
        appends.push(each(appended, group));
        wholes.push(each(begin.elapsed(), group));
    }
    let bytes = Per::Bytes(batch.len());
    print(&format!("append, {label}, {group} in a row"), bytes, of(appends));
    print(&format!("append until stored, {label}, {group} in a row, each"), bytes, of(wholes));
}

fn each(all: Duration, group: usize) -> f64 {
    all.as_secs_f64() * 1e9 / f64::from(u32::try_from(group).expect("a small group"))
}

async fn open(folder: &std::path::Path) -> Log {
    let key = PartitionKey { topic_id: Uuid::from_bytes([7; 16]), partition: PartitionIndex::ZERO };
    let log = Log::open(folder, "bench", key, LogSettings::default(), Arena::new(ARENA_BYTES), Opening::default());
    let log = log.await.expect("a new log opens");
    log.begin_epoch(LeaderEpoch::new(1));
    log
}

fn batch(value_bytes: usize, records: usize) -> CheckedBatch {
    let value = vec![7; value_bytes];
    let mut batch = BatchBuilder::new(Compression::None);
    for _ in 0..records {
        batch.push(NewRecord { timestamp_ms: 1_000_000, value: Some(&value), ..Default::default() });
    }
    batch.build()
}
